package secretwatch

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
)

// mostWatched is the maximum number of watched Secrets of a namespace. The machines of a namespace
// usually use one or two; each watch is an open request at the API server.
const mostWatched = 50

// A Secret that is not watched is read periodically: after a quarter of the time that its object
// has waited so far, within these bounds.
const (
	shortestPoll = time.Minute
	longestPoll  = 15 * time.Minute
)

// Config is the configuration of Watches.
type Config struct {
	Client corev1client.SecretsGetter
	Clock  clock.WithTicker
	// Changed is called when a Secret differs, or may differ, before any object is woken for it.
	Changed func(secret types.NamespacedName)
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error { return required.Fields(c) }

// Watches are the watches of awaited Secrets. New returns one.
type Watches struct {
	cfg   Config
	tasks *pacing.Tasks

	mu      sync.Mutex
	secrets map[types.NamespacedName]*watched
	watched map[string]int                       // number of watched Secrets, by namespace
	awaited map[types.UID][]types.NamespacedName // the Secrets that each object waits for
	crowded map[types.UID]time.Time              // since when each object waits for a Secret that is not watched
}

// watched is one awaited Secret. All fields but its key are guarded by Watches.mu.
type watched struct {
	key     types.NamespacedName
	end     func() // of the watch
	waiting map[types.UID]*waiter

	news  int // number of observed changes; 0 before the first event
	print string
}

// waiter is an object that waits for a Secret.
type waiter struct {
	seen  string // print
	woken int    // the change that it was woken for last
	wake  func()
}

// New returns Watches without Secrets. Errors: those of Config.Validate.
func New(cfg Config) (*Watches, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Watches{
		cfg: cfg, tasks: pacing.NewTasks(),
		secrets: map[types.NamespacedName]*watched{}, watched: map[string]int{},
		awaited: map[types.UID][]types.NamespacedName{}, crowded: map[types.UID]time.Time{},
	}, nil
}

// Run watches until ctx ends, and returns when all watches have ended.
func (w *Watches) Run(ctx context.Context) { w.tasks.Run(ctx) }

// Await registers an object for these Secrets, and for no others, with the print of each that was
// read for it. wake must return soon. It is called once for each change, until Forget. again is the
// time after which the caller has to read the Secrets and call Await again, because too many
// Secrets of the namespace are watched already; 0 is never.
func (w *Watches) Await(who types.UID, seen map[types.NamespacedName]string, wake func()) (again time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range w.awaited[who] {
		if _, still := seen[key]; !still {
			w.stopWaiting(who, key)
		}
	}
	delete(w.awaited, who)
	isCrowded := false
	for key, fingerprint := range seen {
		s := w.watch(key)
		if s == nil {
			isCrowded = true
			continue
		}
		w.awaited[who] = append(w.awaited[who], key)
		one, known := s.waiting[who]
		if !known {
			one = &waiter{}
			s.waiting[who] = one
		}
		one.seen, one.wake = fingerprint, wake
		s.report(one)
	}
	if !isCrowded {
		delete(w.crowded, who)
		return 0
	}
	since, known := w.crowded[who]
	if !known {
		since = w.cfg.Clock.Now()
		w.crowded[who] = since
	}
	return min(max(w.cfg.Clock.Since(since)/4, shortestPoll), longestPoll)
}

// Forget removes a waiting object.
func (w *Watches) Forget(who types.UID) { w.Await(who, nil, nil) }

// Len returns the number of watched Secrets.
func (w *Watches) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.secrets)
}

// watch returns a Secret, which is watched from now on; nil if too many of its namespace are. w.mu
// is held.
func (w *Watches) watch(key types.NamespacedName) *watched {
	s, known := w.secrets[key]
	if !known {
		if w.watched[key.Namespace] >= mostWatched {
			return nil
		}
		w.watched[key.Namespace]++
		s = &watched{key: key, waiting: map[types.UID]*waiter{}}
		s.end = w.tasks.Begin(func(ctx context.Context) { w.run(ctx, s) })
		w.secrets[key] = s
	}
	return s
}

// stopWaiting ends the watch after the last waiter; w.mu is held.
func (w *Watches) stopWaiting(who types.UID, key types.NamespacedName) {
	s := w.secrets[key]
	if delete(s.waiting, who); len(s.waiting) == 0 {
		s.end()
		delete(w.secrets, key)
		if w.watched[key.Namespace]--; w.watched[key.Namespace] == 0 {
			delete(w.watched, key.Namespace)
		}
	}
}

// report wakes a waiter that has read other data, once.
func (w *watched) report(one *waiter) {
	if one.woken < w.news && one.seen != w.print {
		one.woken = w.news
		one.wake()
	}
}

// saw records the current print of a Secret. Cached copies are removed first: for an object that is
// woken it must be read again.
func (w *Watches) saw(s *watched, fingerprint string) {
	w.mu.Lock()
	isKnown := s.news > 0 && s.print == fingerprint
	w.mu.Unlock()
	if isKnown {
		return
	}
	w.cfg.Changed(s.key)
	w.mu.Lock()
	defer w.mu.Unlock()
	s.news, s.print = s.news+1, fingerprint
	for _, one := range s.waiting {
		s.report(one)
	}
}

// lost records that a Secret cannot be watched: it is read for the waiting objects.
func (w *Watches) lost(s *watched) {
	w.cfg.Changed(s.key)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range s.waiting {
		one.wake()
	}
}
