package rollout

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
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
	text, err := json.Marshal(essence(t))
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
	return false
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
	return fmt.Errorf("the MachineDeployment has released %d MachineSets whose labels do not match its selector any more, and they keep their machines; "+
		"find the client that changes their labels, and restore these or delete the MachineSets", released)
}

// IsNewSet reports whether a set which has the name of the deployment's new set is it.
func IsNewSet(d *v1alpha1.MachineDeployment, set *v1alpha1.MachineSet) bool {
	return metav1.IsControlledBy(set, d) && isOf(set, d)
}
