package decide

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// Deployment is a MachineDeployment, as far as it is judged.
type Deployment struct {
	UID        types.UID
	Name       string
	Generation int64
	// Most is how many machines its MachineSets may have together: its replicas and the surge.
	Most int
}

// Count is one count of the machines of a namespace. The zero value is the Count before the first
// one.
type Count struct {
	sets        map[types.UID]setCount
	deployments map[types.UID]deploymentCount
}

// setCount is the count of a MachineSet. Its size grows with the number of sets, and not with that
// of machines.
type setCount struct {
	generation int64
	replicas   int
	// live machines are neither being deleted nor recorded for deletion, and transferred ones are
	// those that were updated in place and have come from another set; they are not among the live
	// ones.
	live, transferred int
	// newest is the creation time of the youngest machine, and next the first ordinal that was not yet
	// recorded for creation. Both are the API server's, and are compared with others of it only.
	newest time.Time
	next   int64
	// released machines have no controller any more, because the set has released them, and still
	// exist. drifting reports whether there are more of them than in an earlier count, and that the
	// set has not created a machine since.
	released int
	drifting bool
	// created is the number of live and transferred machines that were created since the count before,
	// and not recorded for creation then.
	created int
}

// isSizedAs reports whether the size of a set has not changed since another count, nor its
// selector.
func (c setCount) isSizedAs(before setCount) bool {
	return before.generation == c.generation && before.replicas == c.replicas
}

// deploymentCount is the count of a MachineDeployment.
type deploymentCount struct {
	generation int64
	most, live int
}

// Counter counts the machines of a namespace. NewCounter returns one.
type Counter struct {
	before      Count
	sets        []*v1alpha1.MachineSet
	deployments map[types.UID]Deployment
	counts      map[types.UID]*setCount
	toDelete    map[types.UID]map[types.UID]bool
}

// NewCounter returns a Counter of a namespace with these objects, in which before was counted last.
// MachineSets and MachineDeployments have to be read before the machines. A set that is being
// deleted is not judged, and neither is one whose intents cannot be read, nor its
// MachineDeployment: how many machines it is about to create and to delete is not known.
func NewCounter(before Count, sets []*v1alpha1.MachineSet, deployments []Deployment) *Counter {
	c := &Counter{
		before: before, deployments: map[types.UID]Deployment{}, counts: map[types.UID]*setCount{}, toDelete: map[types.UID]map[types.UID]bool{},
	}
	for _, d := range deployments {
		c.deployments[d.UID] = d
	}
	for _, set := range sets {
		in, err := machinefacts.ReadIntents(set)
		if err != nil {
			delete(c.deployments, ownerOf(set))
		}
		if err != nil || set.DeletionTimestamp != nil {
			continue
		}
		c.sets = append(c.sets, set)
		c.counts[set.UID] = &setCount{generation: set.Generation, replicas: int(set.Spec.Replicas), next: in.Next}
		c.toDelete[set.UID] = map[types.UID]bool{}
		for _, d := range in.Delete {
			c.toDelete[set.UID][d.UID] = true
		}
	}
	slices.SortFunc(c.sets, func(a, b *v1alpha1.MachineSet) int { return strings.Compare(a.Name, b.Name) })
	return c
}

// Add counts a machine of the namespace. Its metadata suffices.
func (c *Counter) Add(m metav1.Object) {
	owner := metav1.GetControllerOfNoCopy(m)
	if owner == nil {
		c.addReleased(m)
		return
	}
	is, judged := c.counts[owner.UID]
	if !judged {
		return
	}
	ordinal, derived := machinefacts.Ordinal(m)
	derived = derived && m.GetName() == machinefacts.Name(owner.Name, owner.UID, ordinal)
	created := m.GetCreationTimestamp().Time
	if created.After(is.newest) {
		is.newest = created
	}
	if derived {
		is.next = max(is.next, ordinal+1)
	}
	if m.GetDeletionTimestamp() != nil || c.toDelete[owner.UID][m.GetUID()] {
		return
	}
	if m.GetLabels()[v1alpha1.LabelUpdateResult] == v1alpha1.UpdateResultSuccessful {
		is.transferred++
	} else {
		is.live++
	}
	last := c.before.sets[owner.UID]
	if derived && ordinal >= last.next || !derived && created.After(last.newest) {
		is.created++
	}
}

// addReleased counts a machine without a controller for the set that has released it.
func (c *Counter) addReleased(m metav1.Object) {
	if is, judged := c.counts[types.UID(m.GetAnnotations()[v1alpha1.AnnotationReleasedBy])]; judged && m.GetDeletionTimestamp() == nil {
		is.released++
	}
}

// Count returns the count, for the next Counter.
func (c *Counter) Count() Count {
	count := Count{sets: make(map[types.UID]setCount, len(c.sets)), deployments: map[types.UID]deploymentCount{}}
	for uid, d := range c.deployments {
		count.deployments[uid] = deploymentCount{generation: d.Generation, most: d.Most}
	}
	for _, set := range c.sets {
		is, before := *c.counts[set.UID], c.before.sets[set.UID]
		is.drifting = is.created == 0 && is.isSizedAs(before) && (is.released > before.released || before.drifting)
		count.sets[set.UID] = is
		if d, known := count.deployments[ownerOf(set)]; known {
			d.live += is.live + is.transferred
			count.deployments[ownerOf(set)] = d
		}
	}
	return count
}

// ownerOf returns the UID of the MachineDeployment of a set; "" if it has none.
func ownerOf(set *v1alpha1.MachineSet) types.UID {
	if owner := metav1.GetControllerOfNoCopy(set); owner != nil {
		return owner.UID
	}
	return ""
}
