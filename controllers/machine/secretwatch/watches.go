package secretwatch

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/tasks"
)

// mostWatched is how many Secrets of a namespace are watched at a time. The machines of a namespace use one or two, as a rule; each
// watch is a request that the API server holds open.
const mostWatched = 50

// Of a Secret that is not watched, a machine is to look for itself: after a quarter of the time that it has waited so far, in these
// bounds.
const (
	shortestPoll = time.Minute
	longestPoll  = 15 * time.Minute
)

// Config is what Watches need.
type Config struct {
	Client corev1client.SecretsGetter
	Clock  clock.WithTicker
	// Changed is called when a Secret is, or may be, another, before anybody is woken for it.
	Changed func(secret types.NamespacedName)
}

// Watches are the watches of Secrets that are waited for. Make one with New.
type Watches struct {
	cfg   Config
	tasks *tasks.Set

	mu      sync.Mutex
	secrets map[types.NamespacedName]*watched
	watched map[string]int                       // how many Secrets, by namespace
	awaited map[types.UID][]types.NamespacedName // what each waits for
	crowded map[types.UID]time.Time              // since when each waits for a Secret that is not watched
}

// watched is one Secret that is waited for. All but its key belongs to Watches.mu.
type watched struct {
	key     types.NamespacedName
	end     func() // of the watch
	waiting map[types.UID]*waiter

	news  int // how often it was seen to be another; 0 while nothing was seen
	print string
}

// waiter is one who waits for a Secret.
type waiter struct {
	seen  string // print
	heard int    // the last news that he was woken for
	wake  func()
}

// New makes Watches of nothing.
func New(cfg Config) *Watches {
	return &Watches{
		cfg: cfg, tasks: tasks.New(),
		secrets: map[types.NamespacedName]*watched{}, watched: map[string]int{},
		awaited: map[types.UID][]types.NamespacedName{}, crowded: map[types.UID]time.Time{},
	}
}

// Run watches until ctx ends, and returns when all watches have ended.
func (w *Watches) Run(ctx context.Context) { w.tasks.Run(ctx) }

// Await has a machine wait for these Secrets, and for no others, with the print that it has seen of each. wake must return soon. It is
// called once for each change, until Forget. again is the time after which the machine has to read the Secrets and call Await again,
// because too many Secrets of the namespace are watched already; 0 is never.
func (w *Watches) Await(who types.UID, seen map[types.NamespacedName]string, wake func()) (again time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range w.awaited[who] {
		if _, still := seen[key]; !still {
			w.leave(who, key)
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

// Forget says that somebody waits no longer.
func (w *Watches) Forget(who types.UID) { w.Await(who, nil, nil) }

// Len is how many Secrets are watched.
func (w *Watches) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.secrets)
}

// watch returns a Secret, which is watched from now on; nil when too many of its namespace are. w.mu is held.
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

// leave ends the watch with the last one who waits for it; w.mu is held.
func (w *Watches) leave(who types.UID, key types.NamespacedName) {
	s := w.secrets[key]
	if delete(s.waiting, who); len(s.waiting) == 0 {
		s.end()
		delete(w.secrets, key)
		if w.watched[key.Namespace]--; w.watched[key.Namespace] == 0 {
			delete(w.watched, key.Namespace)
		}
	}
}

// report wakes one who has seen something else, once.
func (s *watched) report(one *waiter) {
	if one.heard < s.news && one.seen != s.print {
		one.heard = s.news
		one.wake()
	}
}

// saw takes in what a Secret is now. What is remembered of it elsewhere goes first: whoever is woken has to read it anew.
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

// lost takes in that a Secret cannot be watched: whoever waits looks for himself.
func (w *Watches) lost(s *watched) {
	w.cfg.Changed(s.key)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range s.waiting {
		one.wake()
	}
}
