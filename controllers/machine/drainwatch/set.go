package drainwatch

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/consistent"
)

// page is how many objects a list asks for at a time.
const page = 500

// Set is all watches of all target clusters. Make one with New.
type Set struct {
	kick chan struct{}

	mu    sync.Mutex
	begun []*watching // that do not run yet

	joining  sync.Mutex // for clusters
	clusters map[kubernetes.Interface]*cluster
}

// New makes a Set in which nothing is drained.
func New() *Set {
	return &Set{kick: make(chan struct{}, 1), clusters: map[kubernetes.Interface]*cluster{}}
}

// join adds a session to those of its cluster, which is watched from the first one on.
func (s *Set) join(client kubernetes.Interface, session *Session) *cluster {
	s.joining.Lock()
	defer s.joining.Unlock()
	c := s.clusters[client]
	if c == nil {
		c = newCluster(s, client)
		s.clusters[client] = c
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[session] = true
	return c
}

// leave removes a session.
func (s *Set) leave(c *cluster, session *Session) {
	s.joining.Lock()
	defer s.joining.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sessions, session)
	if len(c.sessions) > 0 || s.clusters[c.client] != c {
		return
	}
	delete(s.clusters, c.client)
	for _, end := range c.ends {
		end()
	}
}

// watching is one watch.
type watching struct {
	run   func(ctx context.Context)
	mu    sync.Mutex
	stop  context.CancelFunc // nil before it runs
	ended bool
}

// begin has a watch run as soon as the Set does, until its end.
func (s *Set) begin(run func(ctx context.Context)) (end func()) {
	w := &watching{run: run}
	s.mu.Lock()
	s.begun = append(s.begun, w)
	s.mu.Unlock()
	select {
	case s.kick <- struct{}{}:
	default: // it is about to look anyway
	}
	return w.end
}

func (w *watching) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.stop != nil {
		w.stop()
	}
}

// start returns the context of the watch, unless it has ended already.
func (w *watching) start(ctx context.Context) (context.Context, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return nil, false
	}
	ctx, w.stop = context.WithCancel(ctx)
	return ctx, true
}

// Run watches until ctx ends, and returns when all watches have ended.
func (s *Set) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		s.mu.Lock()
		begun := s.begun
		s.begun = nil
		s.mu.Unlock()
		for _, w := range begun {
			running.Go(func() {
				if ctx, ok := w.start(ctx); ok {
					defer w.end()
					w.run(ctx)
				}
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		}
	}
}

// reflect lists and watches a source until ctx ends.
func reflect(ctx context.Context, name string, from consistent.Source, into cache.ReflectorStore) {
	backoff := &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 5 * time.Second}
	reflector := cache.NewReflectorWithOptions(&consistent.ListerWatcher{Source: from}, nil, into,
		cache.ReflectorOptions{Name: name, TypeDescription: name, Backoff: backoff})
	reflector.WatchListPageSize = page
	reflector.RunWithContext(ctx)
}
