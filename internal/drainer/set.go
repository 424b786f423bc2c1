package drainer

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// idleFor is how long a cluster is watched after its last drain: machines that are replaced one by
// one are drained within minutes of each other, and each would else list the whole cluster.
const idleFor = 10 * time.Minute

// bytesOfKind bounds the objects of one kind that drains read of a cluster that belongs to one
// namespace, and bytesOfPods the pods of one of its Nodes: its API server may send any.
const bytesOfKind, bytesOfPods = 32 << 20, 8 << 20

// bounded returns a source of a cluster with that bound.
func bounded(of *target.Cluster, from objectcache.Source, most int64) objectcache.Source {
	if of.Name == "" {
		return from
	}
	return from.AtMost(most)
}

// watchSet is all watches of all target clusters. New returns one.
type watchSet struct {
	watches *pacing.Tasks
	clock   clock.WithDelayedExecution

	joining  sync.Mutex // for clusters
	clusters map[kubernetes.Interface]*cluster
}

// newWatchSet returns a Set without drains.
func newWatchSet(clock clock.WithDelayedExecution) *watchSet {
	return &watchSet{watches: pacing.NewTasks(), clock: clock, clusters: map[kubernetes.Interface]*cluster{}}
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
