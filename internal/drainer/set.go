package drainer

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// idleFor is how long a cluster is watched after its last drain: machines that are replaced one by
// one are drained within minutes of each other, and each would else list the whole cluster.
const idleFor = 10 * time.Minute

// bytesOfDrains bounds the memory of the objects of all kinds that all drains read of a cluster
// that belongs to one namespace, and bytesOfPods that of the pods of one of its Nodes in a list:
// its API server may send any.
const bytesOfDrains, bytesOfPods = 96 << 20, 8 << 20

// memoryOf returns the bound of a cluster; nil is none.
func memoryOf(of *target.Cluster) *objectcache.Memory {
	if of.Name == "" {
		return nil
	}
	return objectcache.NewMemory(bytesOfDrains)
}

// within returns a source with a bound, of which trim returns what drains need of an object.
func within[T any](memory *objectcache.Memory, from objectcache.Source, trim func(T) T) objectcache.Source {
	if memory == nil {
		return from
	}
	return from.Within(memory, func(obj runtime.Object) runtime.Object {
		if is, ok := obj.(T); ok {
			small, _ := any(trim(is)).(runtime.Object)
			return small
		}
		return obj
	})
}

// watchSet is all watches of all target clusters. New returns one.
type watchSet struct {
	watches *pacing.Tasks
	clock   clock.WithDelayedExecution

	joining  sync.Mutex // for clusters
	clusters map[kubeclient.Interface]*cluster
}

// newWatchSet returns a Set without drains.
func newWatchSet(clock clock.WithDelayedExecution) *watchSet {
	return &watchSet{watches: pacing.NewTasks(), clock: clock, clusters: map[kubeclient.Interface]*cluster{}}
}

// join adds a session to those of its cluster, which is watched from the first one on.
func (s *watchSet) join(of *target.Cluster, session *watchSession) *cluster {
	s.joining.Lock()
	defer s.joining.Unlock()
	c := s.clusters[of.Client]
	if c == nil {
		c = newCluster(s, of)
		s.clusters[of.Client] = c
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[session] = true
	if c.idle != nil {
		c.idle.Stop()
	}
	return c
}

// leave removes a session. A cluster without drains is watched for some time.
func (s *watchSet) leave(c *cluster, session *watchSession) {
	s.joining.Lock()
	defer s.joining.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.sessions[session] {
		return
	}
	delete(c.sessions, session)
	if len(c.sessions) == 0 {
		c.idle = s.clock.AfterFunc(idleFor, func() { s.drop(c) })
	}
}

// drop ends the watches of a cluster, unless there are drains again.
func (s *watchSet) drop(c *cluster) {
	s.joining.Lock()
	defer s.joining.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sessions) > 0 || s.clusters[c.of.Client] != c {
		return
	}
	delete(s.clusters, c.of.Client)
	for _, end := range c.ends {
		end()
	}
}

// Run watches until ctx ends, and returns when all watches have ended.
func (s *watchSet) Run(ctx context.Context) { s.watches.Run(ctx) }
