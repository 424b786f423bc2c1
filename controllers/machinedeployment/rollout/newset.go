package rollout

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

const (
	hashLength = 5
	// maxSetName leaves room for the suffix of a machine in the 63 characters of a host's name.
	maxSetName = 57
)

// templateHash names a template. The collision count is part of it: where two templates have the
// same hash, or a foreign set has the name, another one is taken. It has to be stable, and need not
// equal that of another controller: a set is recognised by its template, not by its hash.
func templateHash(t *v1alpha1.MachineTemplateSpec, collisions *int32) string {
	h := fnv.New32a()
	text, err := json.Marshal(new(essence(t)))
	if err != nil { // a template came from JSON and always encodes
		text = nil
	}
	_, _ = h.Write(text) // never fails
	if collisions != nil {
		_, _ = h.Write([]byte(strconv.Itoa(int(*collisions))))
	}
	return strconv.FormatUint(uint64(h.Sum32()), 10)
}

// setName is the deployment's name, cut to fit, and five characters of the hash in an alphabet that
// forms no words.
func setName(deployment, hash string) string {
	suffix := rand.SafeEncodeString(hash)
	suffix = suffix[:min(hashLength, len(suffix))]
	if limit := maxSetName - len(suffix) - 1; len(deployment) > limit {
		deployment = strings.TrimRight(deployment[:limit], "-.")
	}
	return deployment + "-" + suffix
}

// newMachineSet returns the object of the new set, without replicas and annotations.
func newMachineSet(d *v1alpha1.MachineDeployment) *v1alpha1.MachineSet {
	hash := templateHash(&d.Spec.Template, d.Status.CollisionCount)
	template := d.Spec.Template.DeepCopy()
	template.CreationTimestamp = metav1.Time{}
	template.Labels = withHash(template.Labels, hash)
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels = withHash(selector.MatchLabels, hash)
	return &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: setName(d.Name, hash), Namespace: d.Namespace,
			Labels:          setLabels(template.Labels, hash),
			Finalizers:      []string{v1alpha1.FinalizerName},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, v1alpha1.SchemeGroupVersion.WithKind("MachineDeployment"))},
		},
		Spec: v1alpha1.MachineSetSpec{Selector: selector, Template: *template},
	}
}

// setLabels returns the labels of a set, which are those of its template. One by which controllers
// or users freeze a set is not copied: a template is no place to do so, and the end of the freeze
// would be undone by the next set.
func setLabels(template map[string]string, hash string) map[string]string {
	labels := maps.Clone(template)
	maps.DeleteFunc(labels, func(key, _ string) bool { return v1alpha1.IsMachineSetLabelOfControllers(key) })
	return withHash(labels, hash)
}

func withHash(labels map[string]string, hash string) map[string]string {
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1alpha1.LabelMachineTemplateHash] = hash
	return labels
}

// syncNew copies to the new set those values of the deployment that need no new machines.
func syncNew(d *v1alpha1.MachineDeployment, owned []*v1alpha1.MachineSet, set *v1alpha1.MachineSet) {
	for key, value := range d.Annotations {
		if !staysOnDeployment(key) {
			metav1.SetMetaDataAnnotation(&set.ObjectMeta, key, value)
		}
	}
	old := set.Annotations[v1alpha1.AnnotationRevision]
	next := strconv.FormatInt(newRevision(owned, set), 10)
	if old != "" && old != next {
		history := set.Annotations[v1alpha1.AnnotationRevisionHistory]
		if history != "" {
			history += ","
		}
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationRevisionHistory, history+old)
	}
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationRevision, next)
	set.Spec.MinReadySeconds = d.Spec.MinReadySeconds
	set.Spec.AutoPreserveFailedMachineMax = d.Spec.AutoPreserveFailedMachineMax
	set.Spec.Template.Spec.NodeTemplateSpec = *d.Spec.Template.Spec.NodeTemplateSpec.DeepCopy()
	set.Spec.Template.Spec.MachineConfiguration = d.Spec.Template.Spec.MachineConfiguration.DeepCopy()
	set.Spec.Template.Spec.Class.Kind = d.Spec.Template.Spec.Class.Kind
}

// staysOnDeployment lists the annotations that are not copied to a set.
func staysOnDeployment(key string) bool {
	switch key {
	case "kubectl.kubernetes.io/last-applied-configuration", v1alpha1.AnnotationRevision, v1alpha1.AnnotationRevisionHistory,
		v1alpha1.AnnotationDesiredReplicas, v1alpha1.AnnotationMaxReplicas, v1alpha1.AnnotationPreferNoSchedule,
		v1alpha1.AnnotationUnfreeze, v1alpha1.AnnotationTriggerDeletion, v1alpha1.AnnotationDisruptions, v1alpha1.AnnotationRolling,
		v1alpha1.AnnotationSelecting, v1alpha1.AnnotationStrategy, v1alpha1.AnnotationReplacedBy,
		v1alpha1.AnnotationLastReplicaChangeByScaler: // sets get it with their sizes: noteChange
		return true
	}
	return strings.HasPrefix(key, v1alpha1.AutoscalerDomain) // a rollback would bring back the limits of an earlier day
}

// mostReleased is how many sets of one template a deployment may have released before it creates no
// other in their place.
const mostReleased = 2

// CollisionError returns why a deployment whose new set has a name that is taken must not create it
// under another name: it has released so many sets that another client seems to change their
// labels, and each of them keeps its machines. Where sets were released and the template has
// changed since, no name is taken. It returns nil if it may.
func CollisionError(released int) error {
	if released <= mostReleased {
		return nil
	}
	return fmt.Errorf(
		"the MachineDeployment has released %d MachineSets whose labels do not match its selector, and they keep their machines; "+
			"find the client that changes their labels, and restore these or delete the MachineSets", released,
	)
}

// IsNewSet reports whether a set which has the name of the deployment's new set is it.
func IsNewSet(d *v1alpha1.MachineDeployment, set *v1alpha1.MachineSet) bool {
	return metav1.IsControlledBy(set, d) && isOf(set, d)
}

// createNew creates the new set, after the API server has confirmed that the cache misses none.
// creating is false while the old sets have to be changed first, or when it was tried.
func createNew(s *sets) (v Verdict, creating bool) {
	switch w := s.w; {
	case slices.ContainsFunc(w.Owned, orphansDependents):
		return Verdict{Do: Rest}, true // the next set has to adopt the machines, and not to create others in addition to them
	case len(s.predecessors()) > 0 && w.Live == nil:
		return Verdict{Do: ReadLive}, true
	case slices.ContainsFunc(s.predecessors(), func(set *v1alpha1.MachineSet) bool { return len(w.Live.of(set)) == 0 }):
		return awaitCache(), true // it is about to be gone, and the next set may have to adopt what were its machines
	case w.Done.CreateError != "", isRecreating(s.d) && !s.seemOldGone():
		return Verdict{}, false
	case w.LiveSets == nil:
		return Verdict{Do: ListSets}, true
	case unseen(w.Owned, w.LiveSets):
		return awaitCache(), true
	case isRecreating(s.d) && s.mustCountOld():
		return Verdict{Do: ReadLive}, true
	case isRecreating(s.d) && !s.areOldGone():
		return Verdict{}, false
	}
	s.newSet = s.count(newMachineSet(s.d))
	sizes := &sizing{sets: s}
	if v := (setChanges{sizes}).changes(); len(v.Sets) > 0 {
		return v, true // the Nodes of the old machines are marked before the first new one is created
	}
	// Beyond machines of old sets it grows in a separate write: a create that takes effect late
	// must create none. Without any it has its size at once, as it deletes what it adopts beyond
	// that.
	if !slices.ContainsFunc(s.old, func(t *tally) bool { return !t.isEmpty() }) {
		sizes.step()
	}
	set := s.newSet.set
	set.Spec.Replicas = s.newSet.size
	setChanges{sizes}.complement(s.newSet, set)
	v = Verdict{Do: Create, Sets: []*v1alpha1.MachineSet{set}}
	if beginsWithSet(s.d, s.w.Owned) {
		v.Events = append(v.Events, started(set.Annotations[v1alpha1.AnnotationRevision], set))
	}
	if set.Spec.Replicas > 0 {
		v.Events = append(v.Events, scaled(set, 0))
	}
	return v, true
}

// predecessors are the sets of the deployment's template, which are being deleted where no set is
// the new one, without those that another client keeps with a finalizer.
func (s *sets) predecessors() (all []*v1alpha1.MachineSet) {
	for _, t := range s.old {
		isKept := slices.ContainsFunc(t.set.Finalizers, func(f string) bool { return f != v1alpha1.FinalizerName })
		if !isKept && sameTemplate(&t.set.Spec.Template, &s.d.Spec.Template) {
			all = append(all, t.set)
		}
	}
	return all
}

// unseen reports whether the API server has a set of the deployment that the cache does not show.
func unseen(shown []*v1alpha1.MachineSet, live map[types.UID]bool) bool {
	for uid := range live {
		if !slices.ContainsFunc(shown, func(s *v1alpha1.MachineSet) bool { return s.UID == uid }) {
			return true
		}
	}
	return false
}

// awaitCache rests until the cache shows a set that the API server has, which starts a pass, or
// until the API server is read again: a set that is deleted in another slot, where its label was
// edited, is never shown.
func awaitCache() Verdict { return Verdict{Do: Rest, Wake: machinefacts.LateCache} }

// adjust brings all sets to their next sizes and keeps them in step with the deployment; when there
// is nothing to change it deletes sets that are beyond the revision history limit, and ends the
// pass.
func adjust(s *sets) Verdict {
	if v, decided := (inPlaceUpdates{s}).update(); decided {
		return v
	}
	sizes := &sizing{sets: s}
	sizes.step()
	grows := slices.ContainsFunc(s.all(), func(t *tally) bool { return t.size > t.set.Spec.Replicas })
	switch { // a set that the cache does not show has machines that count
	case sizes.needsLive:
		return Verdict{Do: ReadLive}
	case grows && !s.w.Confirmed && s.w.LiveSets == nil:
		return Verdict{Do: ListSets}
	case s.w.LiveSets != nil && grows && unseen(s.w.Owned, s.w.LiveSets):
		return awaitCache()
	case isRecreating(s.d) && s.newSet != nil && s.newSet.size < s.replicas && s.seemOldGone() && s.mustCountOld():
		return Verdict{Do: ReadLive}
	}
	if v := (setChanges{sizes}).changes(); len(v.Sets) > 0 {
		return v
	}
	if v, decided := (inPlaceUpdates{s}).next(); decided {
		return v
	}
	if outdated := s.outdated(); len(outdated) > 0 {
		return Verdict{Do: Delete, Sets: outdated}
	}
	return finish(s)
}

// rollBack sets the template of an earlier revision on the deployment, and removes the request for
// it, in one write. What follows is a rollout like any other, to a set that exists already.
func rollBack(w World) Verdict {
	d := w.Deployment.DeepCopy()
	d.Spec.RollbackTo = nil
	v := Verdict{Do: Save, Deployment: d}
	to, set := findRevision(w.Owned, w.Deployment.Spec.RollbackTo.Revision)
	switch {
	case w.Done.RollbackRefused != "":
		v.Events = []Event{{Reason: v1alpha1.EventRollbackRefused, Message: fmt.Sprintf(
			"Rollback ignored: the API server refuses the template of revision %s: %s; correct a copy of it, and set it as spec.template",
			to, w.Done.RollbackRefused,
		)}}
	case set == nil:
		v.Events = []Event{{Reason: v1alpha1.EventRollbackRevisionNotFound, Message: "Rollback ignored: there is no revision " + to}}
	case sameTemplate(&set.Spec.Template, &d.Spec.Template):
		v.Events = []Event{
			{Reason: v1alpha1.EventRollbackTemplateUnchanged, Message: "Rollback ignored: the template is already that of revision " + to},
		}
	default:
		restore(d, set)
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationRevision, strconv.FormatInt(newRevision(w.Owned, set), 10))
		v.Events = []Event{{Reason: v1alpha1.EventRollback, Message: fmt.Sprintf("Rolled back to revision %s, machine set %s", to, set.Name)}}
	}
	return v
}

// findRevision returns the set of a revision, and what the revision is called; 0 is the one before
// the current.
func findRevision(owned []*v1alpha1.MachineSet, desired int64) (called string, set *v1alpha1.MachineSet) {
	standing := slices.DeleteFunc(slices.Clone(owned), func(s *v1alpha1.MachineSet) bool { return s.DeletionTimestamp != nil })
	if desired == 0 {
		slices.SortStableFunc(standing, func(a, b *v1alpha1.MachineSet) int {
			return cmp.Or(cmp.Compare(machinefacts.Revision(b), machinefacts.Revision(a)), machinefacts.CompareAge(b, a))
		})
		if len(standing) < 2 {
			return "before the current one", nil
		}
		return fmt.Sprint(machinefacts.Revision(standing[1])), standing[1]
	}
	for _, s := range standing {
		if machinefacts.Revision(s) == desired {
			return fmt.Sprint(desired), s
		}
	}
	return fmt.Sprint(desired), nil
}

// restore copies template and annotations of a set to the deployment. Annotations that only the
// deployment has stay.
func restore(d *v1alpha1.MachineDeployment, set *v1alpha1.MachineSet) {
	template := set.Spec.Template.DeepCopy()
	delete(template.Labels, v1alpha1.LabelMachineTemplateHash)
	d.Spec.Template = *template
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	earlier := maps.Clone(set.Annotations)
	maps.DeleteFunc(earlier, func(key, _ string) bool { return staysOnDeployment(key) || staysOnSet(key) })
	maps.Copy(d.Annotations, earlier)
}

// staysOnSet lists the annotations that a rollback does not bring back: those that are about the
// set itself.
func staysOnSet(key string) bool {
	switch key {
	case v1alpha1.AnnotationIntents, v1alpha1.AnnotationTraceparent, v1alpha1.AnnotationRolling:
		return true
	}
	return false
}
