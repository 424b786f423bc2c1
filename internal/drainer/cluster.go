package drainer

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// Indexes of attachments.
const (
	byNode   = "node"
	byVolume = "volume" // the PersistentVolume
)

// cluster is shared by the drains of one target cluster, from the begin of the first until idleFor
// after the end of the last.
type cluster struct {
	of     *target.Cluster
	memory *objectcache.Memory // of its objects, and the pods of its drains; nil is no bound

	budgets     *objectcache.Objects[*policyv1.PodDisruptionBudget]
	claims      *objectcache.Objects[*corev1.PersistentVolumeClaim]
	volumes     *objectcache.Objects[*corev1.PersistentVolume]
	attachments *objectcache.Objects[*storagev1.VolumeAttachment]
	drivers     *objectcache.Objects[*storagev1.CSIDriver]
	watchErrors *watchErrors

	mu       sync.Mutex
	ends     []func() // of its watches
	unsynced int      // kinds that were not listed yet
	sessions map[*watchSession]bool
	idle     clock.Timer // ends the watches, if there are no drains by then; nil before the first has ended
}

// newCluster begins to watch a cluster.
func newCluster(s *watchSet, of *target.Cluster) *cluster {
	client := of.Client
	c := &cluster{
		of: of, memory: memoryOf(of), sessions: map[*watchSession]bool{},
		budgets: objectcache.New[*policyv1.PodDisruptionBudget](), claims: objectcache.New[*corev1.PersistentVolumeClaim](),
		volumes: objectcache.New[*corev1.PersistentVolume](), attachments: objectcache.New[*storagev1.VolumeAttachment](),
		drivers: objectcache.New[*storagev1.CSIDriver](),
	}
	c.watchErrors = newWatchErrors(func() { c.wake(func(*watchSession) bool { return true }) })
	_ = c.attachments.AddIndex(byNode, func(a *storagev1.VolumeAttachment) []string { return []string{a.Spec.NodeName} })
	_ = c.attachments.AddIndex(byVolume, func(a *storagev1.VolumeAttachment) []string { return []string{volumeOf(a)} })
	c.budgets.OnChange(c.budgetChanged)
	c.attachments.OnChange(c.attachmentChanged)
	c.mu.Lock()
	defer c.mu.Unlock()
	share(s, c, "budgets", objectcache.From(client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll)), c.budgets, trimBudget)
	share(s, c, "claims", objectcache.From(client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll)), c.claims, trimClaim)
	share(s, c, "volumes", objectcache.From(client.CoreV1().PersistentVolumes()), c.volumes, trimVolume)
	share(s, c, "attachments", objectcache.From(client.StorageV1().VolumeAttachments()), c.attachments, trimAttachment)
	share(s, c, "CSI drivers", objectcache.From(client.StorageV1().CSIDrivers()), c.drivers, trimDriver)
	return c
}

// share begins to watch one kind; c.mu is held.
func share[T metav1.Object](s *watchSet, c *cluster, name string, from objectcache.Source, all *objectcache.Objects[T], trim func(T) T) {
	c.unsynced++
	into := mirror(all, trim, c.synced)
	c.ends = append(c.ends, s.watches.Begin(func(ctx context.Context) {
		objectcache.Watch(ctx, name+" for drains", c.watchErrors.follow(name, within(c.memory, from, trim)), "", into)
	}))
}

func volumeOf(a *storagev1.VolumeAttachment) string {
	if a.Spec.Source.PersistentVolumeName == nil {
		return ""
	}
	return *a.Spec.Source.PersistentVolumeName
}

// synced records that one more kind was listed.
func (c *cluster) synced() {
	c.mu.Lock()
	c.unsynced--
	done := c.unsynced == 0
	c.mu.Unlock()
	if done {
		c.wake(func(*watchSession) bool { return true })
	}
}

func (c *cluster) isSynced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsynced == 0
}

// wake wakes the drains that a change affects.
func (c *cluster) wake(concerns func(*watchSession) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for session := range c.sessions {
		if concerns(session) {
			session.wake()
		}
	}
}

// budgetChanged wakes the drains that have pods in the budget's namespace.
func (c *cluster) budgetChanged(before, after *policyv1.PodDisruptionBudget) {
	if after == nil {
		after = before
	} else if before != nil && !differs(before, after) {
		return
	}
	c.wake(func(s *watchSession) bool { return len(s.pods.In(after.Namespace)) > 0 })
}

// differs reports whether a field of a budget has changed that drains depend on.
func differs(a, b *policyv1.PodDisruptionBudget) bool {
	return a.Generation != b.Generation || a.Status.ObservedGeneration != b.Status.ObservedGeneration ||
		a.Status.DisruptionsAllowed != b.Status.DisruptionsAllowed || a.Status.CurrentHealthy != b.Status.CurrentHealthy ||
		a.Status.DesiredHealthy != b.Status.DesiredHealthy || a.Status.ExpectedPods != b.Status.ExpectedPods ||
		len(a.Status.DisruptedPods) != len(b.Status.DisruptedPods)
}

// attachmentChanged wakes the drain of the attachment's Node, and those that wait for its volume to
// be attached elsewhere.
func (c *cluster) attachmentChanged(before, after *storagev1.VolumeAttachment) {
	a := after
	if a == nil {
		a = before
	}
	c.wake(func(s *watchSession) bool { return s.node == a.Spec.NodeName || s.awaits(volumeOf(a)) })
}
