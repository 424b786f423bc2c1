package groups

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

const (
	// MostNodes is how many Nodes one call of Delete may name.
	MostNodes = 1000
	// mostNames is how many bytes the names of machines on a MachineDeployment may have: all
	// annotations of an object together may have 256 KiB.
	mostNames = 128 << 10
)

// Live has the state of a group, as it was read for a call that changes it.
type Live struct {
	Deployment *v1alpha1.MachineDeployment
	// Held is why deletions are held in the namespace, and Off why the fleet does nothing in it; "" if
	// they are not, and if it does.
	Held, Off string
	// Now is the time of the control cluster.
	Now time.Time
}

// Increase returns the MachineDeployment with delta more replicas. Errors: a RefusedError.
func Increase(live Live, delta int32) (*v1alpha1.MachineDeployment, error) {
	d := live.Deployment
	limits, ok := limitsOf(d)
	if !ok {
		return nil, notAGroup(d.Namespace, d.Name)
	}
	if delta < 1 {
		return nil, refuse(InvalidArgument, "expected to increase %s by at least 1, got %d", d.Name, delta)
	}
	if why := cmp.Or(live.Off, createsNone(d)); why != "" {
		return nil, refuse(FailedPrecondition, "no machines of %s are created: %s; scale another group", d.Name, why)
	}
	if size := int64(d.Spec.Replicas) + int64(delta); size > int64(limits.Max) {
		return nil, refuse(FailedPrecondition,
			"expected %s to have at most %d replicas, got %d + %d; raise the annotation %s, or scale another group",
			d.Name, limits.Max, d.Spec.Replicas, delta, v1alpha1.AnnotationMaxSize)
	}
	desired := d.DeepCopy()
	desired.Spec.Replicas += delta
	return desired, nil
}

// Target is a Node or an instance that is to be deleted, as it was found. The zero Machine means
// that there is none.
type Target struct {
	Node    Node
	Machine Machine
	// Gone means that the Machine does not exist any more.
	Gone bool
}

// Targets returns what Delete has to know about Nodes of a group: which Machines they are. Those
// have to be read after the MachineDeployment. Errors: a RefusedError, if one is in another group,
// or nothing shows that it ever was in this one.
func (n *Namespace) Targets(id string, nodes []Node) ([]Target, error) {
	g, err := n.group(id)
	if err != nil {
		return nil, err
	}
	if len(nodes) > MostNodes {
		return nil, refuse(InvalidArgument, "expected at most %d Nodes in a call, got %d; send several calls", MostNodes, len(nodes))
	}
	var targets []Target
	for _, node := range nodes {
		m, found := n.find(node)
		switch {
		case found && n.groupOf(m) != g:
			return nil, refuse(InvalidArgument, "expected Nodes of group %s, got %.80q, which is of another one", id, node.Name)
		case !found && !n.wasOurs(node):
			return nil, refuse(NotFound,
				"expected Nodes of group %s, got %.80q with the provider ID %.80q, which no Machine of namespace %s has",
				id, node.Name, node.ProviderID, n.name)
		}
		if slices.ContainsFunc(targets, func(t Target) bool { return found && t.Machine.Name == m.Name }) {
			continue
		}
		targets = append(targets, Target{Node: node, Machine: m, Gone: !found})
	}
	return targets, nil
}

// wasOurs reports whether a Node or instance without a Machine was one of the namespace: its ID is
// one that only the fleet gives to instances, or it is bound to a Machine of the namespace. What
// the client states of it has no other effect than that its absence is no error.
func (n *Namespace) wasOurs(node Node) bool {
	if name, requested := strings.CutPrefix(node.ProviderID, Requested); requested {
		return name != ""
	}
	ref, bound := v1alpha1.MachineOf(&metav1.ObjectMeta{Annotations: node.Annotations})
	return bound && ref.Namespace == n.name
}

// Delete returns the MachineDeployment that names the Machines of the targets, and has as many
// fewer replicas; nil if all of them are gone, or are being deleted. Errors: a RefusedError.
func Delete(live Live, targets []Target) (*v1alpha1.MachineDeployment, error) {
	d := live.Deployment
	limits, ok := limitsOf(d)
	if !ok {
		return nil, notAGroup(d.Namespace, d.Name)
	}
	going := namedOn(d)
	var names []string
	for _, t := range targets {
		if t.Gone || t.Machine.Deleting || going[t.Machine.Name] {
			continue
		}
		if err := mayDelete(t); err != nil {
			return nil, err
		}
		names = append(names, t.Machine.Name)
	}
	if len(names) == 0 {
		return nil, nil //nolint:nilnil // nothing is to be written
	}
	if err := mayShrink(live); err != nil {
		return nil, err
	}
	return shrunk(live, limits.Min, int32(len(names)), names)
}

// mayDelete returns why a Machine must not be deleted.
func mayDelete(t Target) error {
	switch m := t.Machine; {
	case m.Kept:
		return refuse(FailedPrecondition,
			"Machine %s is preserved, and another one would be deleted in its place; end the preservation first", m.Name)
	case m.Ready && t.Node.Name != m.Node:
		return refuse(FailedPrecondition, "expected an instance without a Node, got %.80q, whose Machine %s runs as Node %s; "+
			"a Node with another provider ID than its Machine, %.80q, cannot be scaled", t.Node.Name, m.Name, m.Node, m.ProviderID)
	}
	return nil
}

// mayShrink returns why no machines of a group may be removed.
func mayShrink(live Live) error {
	switch d := live.Deployment; {
	case live.Off != "":
		return refuse(FailedPrecondition, "no machines of %s are deleted: %s", d.Name, live.Off)
	case live.Held != "":
		return refuse(FailedPrecondition, "deletions are held in namespace %s: %s", d.Namespace, live.Held)
	case isRolling(d):
		return refuse(FailedPrecondition, "machines of %s are being replaced; it can be scaled down when the rollout is over, or paused", d.Name)
	}
	return nil
}

// Decrease returns the MachineDeployment with fewer replicas, by -delta. Machines that it has not
// created yet are not created; of those that are there, it names as many as are needed, each one
// that never was a Node. machines are those of the group, read after the MachineDeployment. Errors:
// a RefusedError.
func Decrease(live Live, delta int32, machines []Machine) (*v1alpha1.MachineDeployment, error) {
	d := live.Deployment
	limits, ok := limitsOf(d)
	if !ok {
		return nil, notAGroup(d.Namespace, d.Name)
	}
	if delta >= 0 {
		return nil, refuse(InvalidArgument, "expected to decrease the size of %s by a negative number, got %d", d.Name, delta)
	}
	if err := mayShrink(live); err != nil {
		return nil, err
	}
	going := namedOn(d)
	var standing int64
	var waiting []Machine
	for _, m := range machines {
		if m.Deleting || going[m.Name] {
			continue
		}
		standing++
		if !m.Joined && !m.Kept {
			waiting = append(waiting, m)
		}
	}
	by := -int64(delta)
	named := max(by-max(int64(d.Spec.Replicas)-standing, 0), 0)
	if by > int64(d.Spec.Replicas) || named > int64(len(waiting)) {
		return nil, refuse(FailedPrecondition,
			"expected to decrease the size of %s by machines without a Node, got %d of %d replicas, of which %d have one",
			d.Name, by, d.Spec.Replicas, standing-int64(len(waiting)))
	}
	slices.SortFunc(waiting, leastUseful)
	var names []string
	for _, m := range waiting[:named] {
		names = append(names, m.Name)
	}
	return shrunk(live, limits.Min, int32(by), names)
}

// leastUseful orders machines that have no Node: first those without a VM, then the younger ones.
func leastUseful(a, b Machine) int {
	hasVM := func(m Machine) int {
		if m.ProviderID != "" {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(hasVM(a), hasVM(b)), b.age.Compare(a.age), strings.Compare(a.Name, b.Name))
}

// shrunk returns the MachineDeployment with fewer replicas and more names, in the form of the
// autoscaler's generation 3. The time of the names is never before that of the last change: an
// entry that is later than the change would be one whose replicas are still to be written.
func shrunk(live Live, least, by int32, names []string) (*v1alpha1.MachineDeployment, error) {
	d := live.Deployment.DeepCopy()
	if d.Spec.Replicas-by < least {
		return nil, refuse(FailedPrecondition,
			"expected %s to have at least %d replicas, got %d - %d; lower the annotation %s, or keep the Nodes",
			d.Name, least, d.Spec.Replicas, by, v1alpha1.AnnotationMinSize)
	}
	d.Spec.Replicas -= by
	if len(names) == 0 {
		return d, nil
	}
	at := live.Now
	if last, _ := machinefacts.TimeIn(d, v1alpha1.AnnotationLastReplicaChangeByScaler); last.After(at) {
		at = last
	}
	since := at.UTC().Format(time.RFC3339)
	entries := entriesOn(d)
	for _, name := range names {
		entries = append(entries, name+"~"+since)
	}
	list := strings.Join(entries, ",")
	if len(list) > mostNames {
		return nil, refuse(FailedPrecondition,
			"expected at most %d bytes of names of machines of %s that are being deleted, got %d; try again when some are gone",
			mostNames, d.Name, len(list))
	}
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationTriggerDeletion, list)
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationLastReplicaChangeByScaler, since)
	return d, nil
}

// entriesOn returns the entries of the list of machines to delete, as they are.
func entriesOn(d *v1alpha1.MachineDeployment) []string {
	if list := d.Annotations[v1alpha1.AnnotationTriggerDeletion]; list != "" {
		return strings.Split(list, ",")
	}
	return nil
}

// namedOn returns the names on that list.
func namedOn(d *v1alpha1.MachineDeployment) map[string]bool {
	names := map[string]bool{}
	for _, entry := range entriesOn(d) {
		name, _, _ := strings.Cut(strings.TrimSpace(entry), "~")
		names[name] = true
	}
	return names
}
