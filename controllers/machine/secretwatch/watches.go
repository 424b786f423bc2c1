package secretwatch

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/tasks"
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
	awaited map[types.UID][]types.NamespacedName // what each waits for
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
		secrets: map[types.NamespacedName]*watched{}, awaited: map[types.UID][]types.NamespacedName{},
	}
}

// Run watches until ctx ends, and returns when all watches have ended.
func (w *Watches) Run(ctx context.Context) { w.tasks.Run(ctx) }

// Await has somebody wait for these Secrets, and for no others, with the print that he has seen of each. wake must return
// soon. It is called once for each change, until Forget.
func (w *Watches) Await(who types.UID, seen map[types.NamespacedName]string, wake func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range w.awaited[who] {
		if _, still := seen[key]; !still {
			w.leave(who, key)
		}
	}
	delete(w.awaited, who)
	for key, fingerprint := range seen {
		w.awaited[who] = append(w.awaited[who], key)
		s := w.watch(key)
		one, known := s.waiting[who]
		if !known {
			one = &waiter{}
			s.waiting[who] = one
		}
		one.seen, one.wake = fingerprint, wake
		s.tell(one)
	}
}

// Forget says that somebody waits no longer.
func (w *Watches) Forget(who types.UID) { w.Await(who, nil, nil) }

// Len is how many Secrets are watched.
func (w *Watches) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.secrets)
}

// watch returns a Secret, which is watched from now on; w.mu is held.
func (w *Watches) watch(key types.NamespacedName) *watched {
	s, known := w.secrets[key]
	if !known {
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
	}
}

// tell wakes one who has seen something else, once.
func (s *watched) tell(one *waiter) {
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
		s.tell(one)
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
