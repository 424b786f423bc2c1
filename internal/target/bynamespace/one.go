package bynamespace

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/access"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/connection"
)

// one is the target of one namespace.
type one struct {
	*Targets

	namespace   string
	end         func() // of its task
	users, left int    // guarded by Targets.mu

	wake         chan struct{}
	main, tokens *secrets // tokens is nil without a Secret for the token

	mu      sync.Mutex
	link    *live       // the connection, nil while there is none; run only writes it
	kind    problem     // why the target is not available; none if it is
	problem string      // for people
	opened  time.Time   // since when it is being opened
	late    clock.Timer // reports that it is being opened for too long; nil before run
	log     klog.Logger
	logged  problem // the last that was logged
	outages outages
}

func newOne(t *Targets, namespace string) *one {
	o := &one{Targets: t, namespace: namespace, wake: make(chan struct{}, 1), kind: opening, problem: "its Secret is not read yet"}
	o.opened = t.cfg.Clock.Now()
	o.outages.note(opening, o.opened, t.cfg.OutageAfter)
	o.main = o.newSecrets(t.cfg.Select.main())
	if t.cfg.Select.Token != "" {
		o.tokens = o.newSecrets(t.cfg.Select.token())
	}
	return o
}

// get returns the cluster. Errors: *target.UnavailableError.
func (o *one) get() (*target.Cluster, error) {
	link, is, why, wait := o.state()
	if is == none {
		return link.Cluster, nil
	}
	return nil, &target.UnavailableError{Namespace: o.namespace, Pending: is == opening, Reason: why, After: wait}
}

// state returns the connection, why the target is not available, also for people, and after which
// time it may be, if that is known.
func (o *one) state() (link *live, is problem, why string, wait time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	link, is, why = o.link, o.kind, o.problem
	now, isOpening := o.cfg.Clock.Now(), is == opening
	if isOpening && now.Sub(o.opened) >= o.cfg.BlindAfter {
		is, why = ofSecret, fmt.Sprintf("it is not available %s after it began to be opened: %s", o.cfg.BlindAfter, why)
		if link != nil {
			is = ofServer
		}
	}
	if is == none {
		if why = link.broken(o.cfg.BlindAfter); why == "" {
			why, wait = link.budget.Problem()
		}
		if why != "" {
			is = ofServer
		}
	}
	if isOpening {
		o.outages.note(opening, now, o.cfg.OutageAfter) // which is no outage, also when it lasts
	} else {
		o.outages.note(is, now, o.cfg.OutageAfter)
	}
	why = bounded.Text(why, bounded.Message)
	if is == ofServer {
		why += fmt.Sprintf("; expected that %s names a server that answers, its CA, and credentials with the access of the fleet",
			o.main.selector)
	}
	return link, is, why, wait
}

// run keeps the target current until ctx ends.
func (o *one) run(ctx context.Context) {
	o.mu.Lock()
	o.log = klog.FromContext(ctx)
	o.late = o.cfg.Clock.AfterFunc(o.cfg.BlindAfter, o.isLate)
	o.mu.Unlock()
	defer o.late.Stop()
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { o.main.watch(ctx) })
	if o.tokens != nil {
		watching.Go(func() { o.tokens.watch(ctx) })
	}
	defer o.disconnect(opening, "it is closed")
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
			now := o.cfg.Clock.Now()
			if wait := o.reads.Wait(o.namespace, now); wait > 0 {
				o.cfg.Clock.AfterFunc(wait, o.changedSecret)
				continue
			}
			o.reads.Count(o.namespace, now)
			o.update(ctx)
		}
	}
}

// changedSecret has run read the Secrets.
func (o *one) changedSecret() {
	select {
	case o.wake <- struct{}{}:
	default: // it is going to
	}
}

// update connects as the Secrets say now. Where the cluster is the same, and works, its connection
// continues with the new credentials. Otherwise it begins anew, without the pauses after failures.
func (o *one) update(ctx context.Context) {
	if !o.main.isListed() || o.tokens != nil && !o.tokens.isListed() {
		return
	}
	a, err := o.read()
	if err == nil && o.link != nil && o.link.access.SameCluster(a) && (o.link.access == a || o.link.works()) {
		if err = o.link.use(a); err == nil {
			return
		}
	}
	if err == nil {
		o.disconnect(opening, "it is being connected")
		err = o.connect(ctx, a)
	}
	if err != nil {
		o.disconnect(ofSecret, err.Error())
	}
}

// read returns what the Secrets say. Errors: a Secret that is missing or invalid.
func (o *one) read() (access.Access, error) {
	var token *corev1.Secret
	if o.tokens != nil {
		token = newest(o.tokens.store.All())
	}
	return o.accessOf(o.namespace, o.main.selector, newest(o.main.store.All()), token)
}

// set records why the target is not available by a connection, nil if there is none; none means
// that it is. What an earlier connection reports has no effect.
func (o *one) set(by *live, is problem, why string) {
	o.mu.Lock()
	why = bounded.Text(why, bounded.Message)
	same := by != o.link || o.kind == is && o.problem == why
	if !same {
		o.become(is, why)
	}
	o.mu.Unlock()
	if !same {
		o.changed()
	}
}

// become sets why the target is not available; o.mu is held.
func (o *one) become(is problem, why string) {
	if is == opening && o.kind != opening {
		o.opened = o.cfg.Clock.Now()
		o.late.Reset(o.cfg.BlindAfter)
	}
	o.kind, o.problem = is, why
}

// isLate reports that the target is still being opened.
func (o *one) isLate() {
	o.mu.Lock()
	is := o.kind
	o.mu.Unlock()
	if is == opening {
		o.changed()
	}
}

// awaits records what is missing while nothing is known to be wrong.
func (o *one) awaits(by *live, why string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if by == o.link && o.kind == opening {
		o.problem = why
	}
}

// connect begins to use a cluster, which is available when it is identified and its Nodes are
// listed. Errors: an invalid configuration.
func (o *one) connect(ctx context.Context, a access.Access) error {
	conn, err := connection.New(o.cfg.Policy, a, o.cfg.Clock)
	if err != nil {
		return err
	}
	budget := o.cfg.Budgets.Open(a.Cluster(), o.changed)
	link, err := o.cfg.Connect(o.namespace, conn.Config(), budget.Wrap)
	if err != nil {
		budget.Close()
		return err
	}
	is := newLive(o, link, conn, a, budget)
	o.mu.Lock()
	o.link = is
	o.mu.Unlock()
	is.start(ctx)
	return nil
}

// disconnect ends the use of the cluster, if there is one.
func (o *one) disconnect(is problem, why string) {
	before := o.link
	o.mu.Lock()
	o.link = nil
	why = bounded.Text(why, bounded.Message)
	same := o.kind == is && o.problem == why
	o.become(is, why)
	o.mu.Unlock()
	if before != nil {
		before.stop()
	}
	if !same {
		o.changed()
	}
}

// mostSecrets is how many Secrets with the labels a namespace may have, of which the newest counts;
// secretsPage are in one page of a list: each may have 1 MiB, and most of it is not kept.
const mostSecrets, secretsPage = 100, 10

// secrets are those that a selector selects.
type secrets struct {
	*one
	selector

	store *objectcache.Store[*corev1.Secret]
	paged int // Secrets of the list that is being read

	mu     sync.Mutex
	listed bool
}

func (o *one) newSecrets(by selector) *secrets {
	s := &secrets{one: o, selector: by, store: objectcache.NewStore[*corev1.Secret]()}
	s.store.OnChange(func(_, _ *corev1.Secret) { o.changedSecret() })
	return s
}

func (s *secrets) isListed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listed
}

// trim removes from the Secrets of a page what is not used, before the next one is read. Errors:
// too many since the first page.
func (s *secrets) trim(first bool, page []corev1.Secret) error {
	if first {
		s.paged = 0
	}
	if s.paged += len(page); s.paged > mostSecrets {
		return fmt.Errorf("expected at most %d, got more; delete those that are not used", mostSecrets)
	}
	for i := range page {
		page[i].Data = access.Trim(page[i].Data)
	}
	return nil
}

// watch watches the Secrets until ctx ends.
func (s *secrets) watch(ctx context.Context) {
	api := s.cfg.Secrets.Secrets(s.namespace)
	from := objectcache.Source{
		List: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			first := options.Continue == ""
			options.FieldSelector, options.Limit = s.field(), secretsPage
			list, err := api.List(ctx, options)
			if err == nil {
				err = s.trim(first, list.Items)
			}
			if err != nil && !s.isListed() {
				s.set(nil, ofSecret, fmt.Sprintf("%s cannot be read: %v", s.selector, err))
			}
			return list, err
		},
		Watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = s.field()
			return api.Watch(ctx, options)
		},
	}
	objectcache.Watch(quiet(ctx), "Secrets of the target cluster", from, s.labels, &objectcache.Mirror[*corev1.Secret]{
		Store: s.store,
		Mine: func() (all []metav1.Object) {
			for _, secret := range s.store.All() {
				all = append(all, secret)
			}
			return all
		},
		Keep: func(secret *corev1.Secret) (*corev1.Secret, bool) {
			secret.Data = access.Trim(secret.Data)
			_, known := s.store.Get(objectcache.Key(secret))
			return secret, known || s.store.Len() < mostSecrets
		},
		Listed: func() {
			s.mu.Lock()
			s.listed = true
			s.mu.Unlock()
			s.changedSecret()
		},
	})
}
