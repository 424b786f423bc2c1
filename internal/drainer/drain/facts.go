package drain

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

// Facts are the input of a decision about one drain. All of it is read only.
type Facts struct {
	// Now is the time of the decision, and Ahead by how much the clock of the target cluster, by which
	// its API server sets times on objects, is ahead of it.
	Now      time.Time
	Ahead    time.Duration
	Settings Settings
	Order    Order
	// Node in its current state.
	Node *corev1.Node
	// Sight is the completeness of the following facts.
	Sight Sight
	// Blind is why some of the following cannot be watched now, so that it is missing or may be old;
	// "" if all can.
	Blind string
	// Live reports whether the pods come from a live read of this pass: a missing pod does not exist.
	Live bool
	// Pods of the Node, all of them.
	Pods []*corev1.Pod
	// Budgets of the pods' namespaces.
	Budgets []*policyv1.PodDisruptionBudget
	// Volumes of the pods.
	Volumes Volumes
	// Memory of this process.
	Memory Memory
	// FreeDetaches is how many more volumes may begin to move in the target cluster, as far as this
	// process decides.
	FreeDetaches int
}

// Settings are the fleet's settings for drains, some of them overridden by the machine.
type Settings struct {
	// Timeout is how long the pods have to leave before they are deleted without grace.
	Timeout time.Duration
	// MaxEvictRetries is how long the eviction of a pod is tried before it is deleted without grace:
	// 20 s for each.
	MaxEvictRetries int
	// DetachTimeout is how long a volume without a pod may stay attached.
	DetachTimeout time.Duration
	// ReattachTimeout is how long the next pod with a volume waits for a detached one to be attached
	// to another Node.
	ReattachTimeout time.Duration
	// VolumeParallelism is how many volumes of a Node move at a time before the next pod with volumes
	// waits. If their detachment cannot be observed, it is one.
	VolumeParallelism int
	// SeveralBudgets reports whether pods that several budgets select are evicted by writing to the
	// status of these; otherwise they stay until the drain is forced, because the eviction API does
	// not evict them.
	SeveralBudgets bool
}

// Order is the request for a drain.
type Order struct {
	// Since is when the drain was requested; its deadlines count from it.
	Since time.Time
	// Timeout is how long pods have from then on.
	Timeout time.Duration
	// EvictTime is how long the eviction of a pod is tried, from the first time that it is refused.
	EvictTime time.Duration
	// Force deletes all pods at once and without grace.
	Force bool
	// Stays reports whether the VM continues to run. Then attachments are not deleted, because the VM
	// may still write to their volumes.
	Stays bool
	// Reach contains what is known of the API servers at Now: the time of an outage is not that of the
	// pods. Deadlines are compared with no time that was read later, but with Now and the time since
	// then: the clock may have been set in between, of which Reach knows nothing.
	Reach reach.Fact
	Now   time.Time
	// IsShut reports whether new pods are kept away by other means, so that the Node is not cordoned.
	IsShut bool
}

// ForDeletion returns the order to empty the Node of a machine that is being deleted.
func ForDeletion(m *v1alpha1.Machine, settings Settings) Order {
	order := orderFor(m, settings)
	if m.DeletionTimestamp != nil {
		order.Since = m.DeletionTimestamp.Time
	}
	order.Force, _ = strconv.ParseBool(m.Labels[v1alpha1.LabelForceDeletion])
	return order
}

// ForPreservation returns the order to empty the Node of a machine that has failed and is
// preserved.
func ForPreservation(m *v1alpha1.Machine, settings Settings) Order {
	order := orderFor(m, settings)
	order.Since, order.Stays, order.IsShut = m.Status.CurrentStatus.LastUpdateTime.Time, true, true
	order.Force, _ = strconv.ParseBool(m.Labels[v1alpha1.LabelForceDrain])
	return order
}

// ForUpdate returns the order to empty a Node that is to be updated in place, and was selected at a
// time.
func ForUpdate(m *v1alpha1.Machine, selected time.Time, settings Settings) Order {
	order := orderFor(m, settings)
	order.Since, order.Stays = selected, true
	order.Force, _ = strconv.ParseBool(m.Labels[v1alpha1.LabelForceDrain])
	return order
}

// ForConfiguration returns the order to empty a Node that gets a configuration, since a time. m is
// the Node's machine; nil when it is not known, and then the settings apply.
func ForConfiguration(m *v1alpha1.Machine, since time.Time, settings Settings) Order {
	if m == nil {
		m = &v1alpha1.Machine{}
	}
	return ForUpdate(m, since, settings)
}

// mostEvictRetries is the largest number of retries that has an effect: so many retries take most
// of a year, and the time of 2147483647 retries is more than a time.Duration holds.
const mostEvictRetries = 1_000_000

// orderFor returns the order from a machine's own configuration, or else from the settings.
func orderFor(m *v1alpha1.Machine, settings Settings) Order {
	order, retries := Order{Timeout: settings.Timeout}, settings.MaxEvictRetries
	if c := m.Spec.MachineConfiguration; c != nil {
		if c.MachineDrainTimeout != nil {
			order.Timeout = c.MachineDrainTimeout.Duration
		}
		if c.MaxEvictRetries != nil {
			retries = int(*c.MaxEvictRetries)
		}
	}
	order.EvictTime = time.Duration(min(max(retries, 0), mostEvictRetries)) * evictAgain
	return order
}

// Under returns the order as it stands with what is known of the API servers at a time.
func (o Order) Under(is reach.Fact, now time.Time) Order {
	o.Reach, o.Now = is, now
	return o
}

// deadline returns when the time of the pods is over: without the time of an outage, and not before
// the Node has reported after it.
func (o Order) deadline() time.Time {
	return latestOf(o.Reach.Extend(o.Since, o.Since.Add(o.Timeout)), o.Reach.Settled())
}

// Sight is the completeness of the facts about a Node.
type Sight int

// The values, each more than the one before.
const (
	// Unseen means that nothing was read.
	Unseen Sight = iota
	// Listed means that the pods were listed, and nothing else.
	Listed
	// Awaited is Listed, while the watches begin.
	Awaited
	// Watched means that everything is watched.
	Watched
)

// Volumes are the facts about volumes.
type Volumes struct {
	Claims map[types.NamespacedName]*corev1.PersistentVolumeClaim
	// PVs by name.
	PVs map[string]*corev1.PersistentVolume
	// Attachments to this Node, and those of volumes in Memory to other Nodes.
	Attachments []*storagev1.VolumeAttachment
	// CSIDrivers of the cluster, by name.
	CSIDrivers map[string]*storagev1.CSIDriver
	// IDs are the cloud's names of volumes, by PV, as far as the machine's driver knows them.
	IDs map[string]string
}

// Memory is the state of a drain in a process. The zero value is that of a process that has just
// taken over.
type Memory struct {
	// Attempts at pods and attachments, by UID.
	Attempts map[types.UID]Attempt
	// BlockedSince is since when the removal of pods is blocked only by a budget or the API server, by
	// UID.
	BlockedSince map[types.UID]time.Time
	// Recounts of the budgets of pods that have several, by the pod's UID.
	Recounts map[types.UID]Recount
	// Volumes by key.
	Volumes map[string]VolumeMemory
	// BlindSince is since when something cannot be watched; zero while all can.
	BlindSince time.Time
	// Forced are the pods that were deleted without grace.
	Forced Forced
	// Health has those of the Node's conditions that can force a drain.
	Health map[corev1.NodeConditionType]Health
}

// Health records what this process has observed of a condition of the Node.
type Health struct {
	// At is when it was last seen.
	At time.Time
	// Bad reports whether it showed a Node on which pods cannot end, Transition is its own time of
	// that, and Since when that began.
	Bad               bool
	Transition, Since time.Time
}

// Attempt is the last attempt to remove an object, and its result.
type Attempt struct {
	At time.Time
	// Forced reports whether it was a deletion without grace.
	Forced bool
	// Accepted reports whether the API server has accepted it; otherwise the other fields have the
	// refusal.
	Accepted bool
	// IsRepeated reports whether the server has accepted the attempt before this one, too, and the
	// object was not being deleted.
	IsRepeated bool
	// NotBefore is the earliest time of the next request.
	NotBefore time.Time
	// Why is the reason of the server.
	Why string
}

// Accepted is an attempt that the API server has accepted. before is the last attempt at the same
// object. why is the server's answer in place of a deletion, which shows when the object
// stays; "" when it has accepted that.
func Accepted(before Attempt, now time.Time, how How, why string) Attempt {
	return Attempt{At: now, Forced: how == Delete, Accepted: true, IsRepeated: before.Accepted, Why: why}
}

// shows returns when a watch must have shown the effect of an attempt that was accepted.
func (a Attempt) shows() time.Time {
	if a.IsRepeated {
		return a.At.Add(evictAgain)
	}
	return a.At.Add(lateWatch)
}

// Refused is an attempt that the API server has refused. isFull reports whether that is temporary:
// a budget is exhausted, or the server is overloaded; retryAfter is the server's request to wait, 0
// without one.
func Refused(now time.Time, how How, isFull bool, retryAfter time.Duration, why string) Attempt {
	pause := evictAgain
	switch {
	case how == Delete:
		pause = forceAgain
	case isFull:
		pause = evictPause
	}
	return Attempt{At: now, Forced: how == Delete, NotBefore: now.Add(max(pause, retryAfter)), Why: why}
}

// VolumeMemory is the state of a volume that is, or was, attached to the Node.
type VolumeMemory struct {
	// Recreated reports whether a controller creates its pod anew, so that it will be attached to
	// another Node.
	Recreated bool
	// IdleSince is since when no pod of the Node uses it although it is attached; zero while one does.
	IdleSince time.Time
	// DetachedSince is since when it is detached; zero before.
	DetachedSince time.Time
}
