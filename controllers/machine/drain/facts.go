package drain

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Facts are all that a decision about one drain rests on. Everything in them is read only.
type Facts struct {
	// Now is the time of the decision.
	Now      time.Time
	Settings Settings
	Order    Order
	// Node as it stands.
	Node *corev1.Node
	// Sight is how much was seen of what follows.
	Sight Sight
	// Blind says why some of what follows cannot be watched now, so that it is missing or may be old; "" when all is well.
	Blind string
	// Live says that the pods come from a read of this pass, past all caches: what is missing is not there.
	Live bool
	// Pods of the Node, all of them.
	Pods []*corev1.Pod
	// Budgets of the pods' namespaces.
	Budgets []*policyv1.PodDisruptionBudget
	// Volumes of the pods.
	Volumes Volumes
	// Memory of this process.
	Memory Memory
	// FreeDetaches is how many volumes more may begin to move in the target cluster, as far as this process decides.
	FreeDetaches int
}

// Settings are the fleet's settings for drains, some of them overridden by a machine's own.
type Settings struct {
	// Timeout is how long the pods have to leave before they are deleted without grace.
	Timeout time.Duration
	// MaxEvictRetries says for how long the eviction of a pod is tried before it is deleted without grace: 20 s for each.
	MaxEvictRetries int
	// DetachTimeout is how long a volume that no pod uses any more may stay attached.
	DetachTimeout time.Duration
	// ReattachTimeout is how long the next pod with a volume waits for a detached one to be attached elsewhere.
	ReattachTimeout time.Duration
	// VolumeParallelism is how many volumes of a Node move at a time before the next pod with volumes waits. Where it
	// cannot be known when they are detached, it is one.
	VolumeParallelism int
}

// Order says what is wanted of a drain.
type Order struct {
	// Since is when the drain was asked for; its deadlines count from it.
	Since time.Time
	// Timeout is how long pods have from then on.
	Timeout time.Duration
	// EvictTime is how long a pod is asked for in good, from the first time that it may not be evicted.
	EvictTime time.Duration
	// Force deletes all pods at once and without grace.
	Force bool
	// Stays says that the VM goes on running. Then attachments are not deleted, because nobody knows whether the VM still
	// writes to their volumes.
	Stays bool
	// IsShut says that something else keeps new pods away, so that the Node is not cordoned.
	IsShut bool
}

// ForDeletion is the order to empty the Node of a machine that is being deleted.
func ForDeletion(m *v1alpha1.Machine, settings Settings) Order {
	order := orderFor(m, settings)
	if m.DeletionTimestamp != nil {
		order.Since = m.DeletionTimestamp.Time
	}
	order.Force, _ = strconv.ParseBool(m.Labels[v1alpha1.LabelForceDeletion])
	return order
}

// ForPreservation is the order to empty the Node of a machine that has failed and is preserved.
func ForPreservation(m *v1alpha1.Machine, settings Settings) Order {
	order := orderFor(m, settings)
	order.Since, order.Stays, order.IsShut = m.Status.CurrentStatus.LastUpdateTime.Time, true, true
	order.Force, _ = strconv.ParseBool(m.Labels[v1alpha1.LabelForceDrain])
	return order
}

// ForUpdate is the order to empty a Node that is to be updated in place, and was selected for that at a time.
func ForUpdate(m *v1alpha1.Machine, selected time.Time, settings Settings) Order {
	order := orderFor(m, settings)
	order.Since, order.Stays = selected, true
	order.Force, _ = strconv.ParseBool(m.Labels[v1alpha1.LabelForceDrain])
	return order
}

// mostEvictRetries is the largest number of retries that has an effect: so many retries take most of a year, and the time of
// 2147483647 retries is more than a time.Duration holds.
const mostEvictRetries = 1_000_000

// orderFor is what a machine's own configuration says of drains, or else the settings.
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

// deadline is when the time of the pods is over.
func (o Order) deadline() time.Time { return o.Since.Add(o.Timeout) }

// Sight is how much was seen of a Node.
type Sight int

// The sights, each more than the one before.
const (
	// Unseen means that nobody has looked.
	Unseen Sight = iota
	// Listed means that the pods were listed, and that nothing else is known.
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
	// IDs are the cloud's names of volumes, by PV, of those that the machine's driver knows.
	IDs map[string]string
}

// Memory is what a process remembers of a drain. The zero value is that of a process that has just come to it.
type Memory struct {
	// Attempts at pods and attachments, by UID.
	Attempts map[types.UID]Attempt
	// HeldSince is since when pods could have gone, had it not been for a budget or the API server, by UID.
	HeldSince map[types.UID]time.Time
	// Recounts of the budgets of pods that have several, by the pod's UID.
	Recounts map[types.UID]Recount
	// Volumes by key.
	Volumes map[string]VolumeMemory
	// BlindSince is since when something cannot be watched; zero while all can.
	BlindSince time.Time
}

// Attempt is the last attempt to remove something, and what came of it.
type Attempt struct {
	At time.Time
	// Forced says that it was a deletion without grace.
	Forced bool
	// Accepted says that the API server has accepted it; else the rest says why not.
	Accepted bool
	// NotBefore is when the server may be asked again at the earliest.
	NotBefore time.Time
	// Why the server refused, for people.
	Why string
}

// Accepted is an attempt that the API server has accepted.
func Accepted(now time.Time, how How) Attempt {
	return Attempt{At: now, Forced: how == Delete, Accepted: true}
}

// Refused is an attempt that the API server has refused. isFull says that there was no room for it now, as a budget says
// it, or a server with too much to do; retryAfter is what it asks for, 0 when it does not.
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

// VolumeMemory is what is remembered of a volume that is, or was, attached to the Node.
type VolumeMemory struct {
	// Recreated says that something makes its pod anew, so that it will be attached elsewhere.
	Recreated bool
	// IdleSince is since when no pod of the Node uses it although it is attached; zero while one does.
	IdleSince time.Time
	// DetachedSince is since when it is detached; zero before.
	DetachedSince time.Time
}
