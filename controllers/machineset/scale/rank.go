package scale

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// defaultPriority of a machine without a valid priority annotation.
const defaultPriority = 3

// rankKey is the input of the order of deletion, computed once for each machine.
type rankKey struct {
	preserved int // 0 not, 1 automatically, 2 by request, 3 unknown, because it cannot be decoded and is not named
	expiry    time.Time
	priority  int
	marked    time.Time // zero: not marked
	phase     int
	created   time.Time
	name      string
}

// rule is one criterion of the order. It returns a negative number when a is deleted before b.
type rule struct {
	name    string
	compare func(a, b rankKey) int
}

// rules are the order of deletion: the first rule that distinguishes two machines decides.
func rules() []rule {
	return []rule{
		{"not preserved, then preserved automatically, then preserved by request", func(a, b rankKey) int {
			return cmp.Compare(a.preserved, b.preserved)
		}},
		{"preservation that ends earlier", func(a, b rankKey) int { return a.expiry.Compare(b.expiry) }},
		{"lower priority annotation", func(a, b rankKey) int { return cmp.Compare(a.priority, b.priority) }},
		{"marked for deletion, the earlier mark first", compareMarks},
		{"phase, the least useful first", func(a, b rankKey) int { return cmp.Compare(a.phase, b.phase) }},
		{"older", func(a, b rankKey) int { return a.created.Compare(b.created) }},
		{"name", func(a, b rankKey) int { return strings.Compare(a.name, b.name) }},
	}
}

func compareMarks(a, b rankKey) int {
	if a.marked.IsZero() != b.marked.IsZero() {
		if a.marked.IsZero() {
			return 1
		}
		return -1
	}
	return a.marked.Compare(b.marked)
}

// rank sorts machines into the order in which they are deleted.
func rank(w World, machines []*v1alpha1.Machine) []*v1alpha1.Machine {
	type ranked struct {
		key     rankKey
		machine *v1alpha1.Machine
	}
	all := make([]ranked, len(machines))
	for i, m := range machines {
		all[i] = ranked{keyOf(w, m), m}
	}
	order := rules()
	slices.SortFunc(all, func(a, b ranked) int {
		for _, r := range order {
			if c := r.compare(a.key, b.key); c != 0 {
				return c
			}
		}
		return 0
	})
	sorted := make([]*v1alpha1.Machine, len(all))
	for i, r := range all {
		sorted[i] = r.machine
	}
	return sorted
}

func keyOf(w World, m *v1alpha1.Machine) rankKey {
	annotations := w.newest(m).Annotations
	key := rankKey{priority: defaultPriority, phase: phaseRank(m.Status.CurrentStatus.Phase), created: m.CreationTimestamp.Time, name: m.Name}
	if machinefacts.IsPreserved(m, w.Now) {
		key.preserved, key.expiry = 2, m.Status.CurrentStatus.PreserveExpiryTime.Time
		if annotations[v1alpha1.AnnotationPreserve] == v1alpha1.PreserveAuto {
			key.preserved = 1
		}
	}
	if p, err := strconv.Atoi(annotations[v1alpha1.AnnotationPriority]); err == nil {
		key.priority = p
	}
	if w.Undecodable[m.UID] && annotations[v1alpha1.AnnotationPriority] != v1alpha1.PriorityTriggered {
		key.preserved = 3
	}
	key.marked, _ = machinefacts.TimeIn(w.newest(m), v1alpha1.AnnotationMarkedForDeletionTime)
	return key
}

// chosenUntil returns the time up to which the set has the choices of the cluster-autoscaler
// together with the replicas that belong to them.
func chosenUntil(set *v1alpha1.MachineSet) time.Time {
	until, _ := machinefacts.TimeIn(set, v1alpha1.AnnotationLastReplicaChangeByScaler)
	return until
}

// isChosen reports whether the cluster-autoscaler has chosen the machine for deletion, and the set
// has the replicas that were written afterwards: with earlier replicas, the machine would be
// replaced.
func isChosen(m *metav1.ObjectMeta, until time.Time) bool {
	marked, _ := machinefacts.TimeIn(m, v1alpha1.AnnotationMarkedForDeletionTime)
	return m.Annotations[v1alpha1.AnnotationPriority] == v1alpha1.PriorityTriggered && !marked.IsZero() && !marked.After(until)
}

// phaseRank orders phases by how useful the machine is. A machine without a phase has no VM and is
// deleted before one that is being created; one that is being updated in place ranks like one that
// waits for its Node.
func phaseRank(phase v1alpha1.MachinePhase) int {
	switch phase {
	case v1alpha1.MachineTerminating:
		return 0
	case v1alpha1.MachineFailed:
		return 1
	case v1alpha1.MachineCrashLoopBackOff, "":
		return 2
	case v1alpha1.MachineUnknown, v1alpha1.MachineInPlaceUpdateFailed:
		return 3
	case v1alpha1.MachinePending, v1alpha1.MachineInPlaceUpdating:
		return 4
	case v1alpha1.MachineAvailable, v1alpha1.MachineInPlaceUpdateSuccessful:
		return 5
	case v1alpha1.MachineRunning:
		return 6
	default:
		return 0
	}
}
