package drainer

import (
	"context"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// watchSession is the view of one drain, from its begin to its end.
type watchSession struct {
	set     *watchSet
	cluster *cluster
	node    string
	wake    func()
	pods    *objectcache.Objects[*corev1.Pod]
	end     func() // of the watch of the pods

	watchErrors *watchErrors

	mu      sync.Mutex
	synced  bool
	awaited map[string]bool // volumes
}

// OfNode selects the pods of a Node.
func OfNode(node string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}
}

// Begin begins to watch for the drain of a Node. wake is called, and must return soon, after each
// change that affects the drain, until it ends.
func (s *watchSet) Begin(of *target.Cluster, node string, wake func()) *watchSession {
	session := &watchSession{set: s, node: node, wake: wake, pods: objectcache.New[*corev1.Pod](), awaited: map[string]bool{}}
	session.pods.OnChange(func(before, after *corev1.Pod) {
		if before == nil || after == nil || concerns(before, after) {
			wake()
		}
	})
	session.watchErrors = newWatchErrors(wake)
	session.cluster = s.join(of, session)
	into := mirror(session.pods, Trim, session.podsSynced)
	session.end = s.watches.Begin(func(ctx context.Context) {
		pods := objectcache.From(of.Client.CoreV1().Pods(metav1.NamespaceAll)).Fields(OfNode(node).FieldSelector)
		objectcache.Watch(ctx, "pods of Node "+node, session.watchErrors.follow("pods", within(session.cluster.memory, pods, Trim)), "", into)
	})
	return session
}

// End ends the session. Some time after the last one in its cluster, nothing is watched there any
// more.
func (s *watchSession) End() {
	s.end()
	s.set.leave(s.cluster, s)
}

// concerns excludes frequent changes of pods that do not affect a drain.
func concerns(before, after *corev1.Pod) bool {
	isReady := func(p *corev1.Pod) bool {
		return len(p.Status.Conditions) > 0 && p.Status.Conditions[0].Status == corev1.ConditionTrue
	}
	return before.Status.Phase != after.Status.Phase || isReady(before) != isReady(after) ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) || !maps.Equal(before.Labels, after.Labels)
}

func (s *watchSession) podsSynced() {
	s.mu.Lock()
	s.synced = true
	s.mu.Unlock()
	s.wake()
}

// Await wakes the drain when one of these volumes is attached to another Node.
func (s *watchSession) Await(volumes map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaited = volumes
}

func (s *watchSession) awaits(volume string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.awaited[volume]
}

// Show adds the cached objects to the facts, without the cloud's names of volumes. Before
// everything was listed it adds nothing, and returns false. Pods that come from a live read of this
// pass are not replaced.
func (s *watchSession) Show(f *drain.Facts) bool {
	s.mu.Lock()
	synced := s.synced
	s.mu.Unlock()
	if !synced || !s.cluster.isSynced() {
		f.Sight = drain.Awaited
		return false
	}
	f.Sight = drain.Watched
	if !f.Live {
		f.Pods = s.pods.All()
	}
	s.cluster.show(f, s.node)
	return true
}

// show adds the objects to the facts that the pods depend on.
func (c *cluster) show(f *drain.Facts, node string) {
	f.Budgets = nil
	f.Volumes = drain.Volumes{
		Claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{}, PVs: map[string]*corev1.PersistentVolume{},
		CSIDrivers: map[string]*storagev1.CSIDriver{},
	}
	namespaces := map[string]bool{}
	volumes := map[string]bool{}
	for _, pod := range f.Pods {
		namespaces[pod.Namespace] = true
		for _, key := range drain.ClaimsOf(pod) {
			if claim, ok := c.claims.Get(key); ok {
				f.Volumes.Claims[key] = claim
				volumes[claim.Spec.VolumeName] = true
			}
		}
	}
	for namespace := range namespaces {
		f.Budgets = append(f.Budgets, c.budgets.In(namespace)...)
	}
	for volume := range f.Memory.Volumes {
		volumes[volume] = true
	}
	f.Volumes.Attachments = c.attachments.By(byNode, node)
	for _, a := range f.Volumes.Attachments {
		volumes[volumeOf(a)] = true
	}
	delete(volumes, "")
	for volume := range volumes {
		if pv, ok := c.volumes.Get(types.NamespacedName{Name: volume}); ok {
			f.Volumes.PVs[volume] = pv
		}
		for _, a := range c.attachments.By(byVolume, volume) {
			if a.Spec.NodeName != node {
				f.Volumes.Attachments = append(f.Volumes.Attachments, a)
			}
		}
	}
	for _, d := range c.drivers.All() {
		f.Volumes.CSIDrivers[d.Name] = d
	}
}
