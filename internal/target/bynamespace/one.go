package bynamespace

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

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
	link    *live  // the connection, nil while there is none; run only writes it
	ready   bool   // the target is available
	problem string // why it is not
	pending bool   // nothing is known to be wrong
}

func newOne(t *Targets, namespace string) *one {
	o := &one{Targets: t, namespace: namespace, wake: make(chan struct{}, 1), problem: "its Secret is not read yet", pending: true}
	o.main = o.newSecrets(t.cfg.Select.main())
	if t.cfg.Select.Token != "" {
		o.tokens = o.newSecrets(t.cfg.Select.token())
	}
	return o
}

// get returns the cluster. Errors: *target.UnavailableError.
func (o *one) get() (*target.Cluster, error) {
	o.mu.Lock()
	link, ready, problem, pending := o.link, o.ready, o.problem, o.pending
	o.mu.Unlock()
	if ready {
		if problem = link.broken(o.cfg.BlindAfter); problem == "" {
			why, wait := link.budget.Problem()
			if why == "" {
				return link.Cluster, nil
			}
			return nil, &target.UnavailableError{Namespace: o.namespace, Reason: bounded.Text(why, bounded.Message), After: wait}
		}
	}
	return nil, &target.UnavailableError{Namespace: o.namespace, Pending: pending, Reason: problem}
}

// run keeps the target current until ctx ends.
func (o *one) run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { o.main.watch(ctx) })
	if o.tokens != nil {
		watching.Go(func() { o.tokens.watch(ctx) })
	}
	defer o.disconnect("it is closed", true)
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
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

// update connects as the Secrets say now.
func (o *one) update(ctx context.Context) {
	if !o.main.isListed() || o.tokens != nil && !o.tokens.isListed() {
		return
	}
	a, err := o.read()
	if err == nil && o.link != nil && o.link.access.SameCluster(a) {
		if err = o.link.connection.Use(a); err == nil {
			o.link.access = a
			return
		}
	}
	if err == nil {
		o.disconnect("it is being connected", true)
		err = o.connect(ctx, a)
	}
	if err != nil {
		o.disconnect(err.Error(), false)
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

// set records whether the target is available by a connection, nil if there is none, and why not.
// What an earlier connection reports has no effect.
func (o *one) set(by *live, ready bool, problem string) {
	o.mu.Lock()
	problem = bounded.Text(problem, bounded.Message)
	same := by != o.link || o.ready == ready && o.problem == problem
	if !same {
		o.ready, o.problem, o.pending = ready, problem, false
	}
	o.mu.Unlock()
	if !same {
		o.changed(o.namespace)
	}
}

// connect begins to use a cluster, which is available when it is identified and its Nodes are
// listed. Errors: an invalid configuration.
func (o *one) connect(ctx context.Context, a access.Access) error {
	conn, err := connection.New(o.cfg.Policy, a)
	if err != nil {
		return err
	}
	budget := o.cfg.Budgets.Open(a.Cluster(), func() { o.changed(o.namespace) })
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
func (o *one) disconnect(why string, pending bool) {
	before := o.link
	o.mu.Lock()
	o.link = nil
	why = bounded.Text(why, bounded.Message)
	same := !o.ready && o.problem == why
	o.ready, o.problem, o.pending = false, why, pending
	o.mu.Unlock()
	if before != nil {
		before.stop()
	}
	if !same {
		o.changed(o.namespace)
	}
}

// secrets are those that a selector selects.
type secrets struct {
	*one
	selector

	store *objectcache.Store[*corev1.Secret]

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

// watch watches the Secrets until ctx ends.
func (s *secrets) watch(ctx context.Context) {
	api := s.cfg.Secrets.Secrets(s.namespace)
	from := objectcache.Source{
		List: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = s.field()
			list, err := api.List(ctx, options)
			if err != nil && !s.isListed() {
				s.set(nil, false, fmt.Sprintf("%s cannot be read: %v", s.selector, err))
			}
			return list, err
		},
		Watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = s.field()
			return api.Watch(ctx, options)
		},
	}
	objectcache.Watch(ctx, "Secrets of the target cluster", from, s.labels, &objectcache.Mirror[*corev1.Secret]{
		Store: s.store,
		Mine: func() (all []metav1.Object) {
			for _, secret := range s.store.All() {
				all = append(all, secret)
			}
			return all
		},
		Keep: func(secret *corev1.Secret) (*corev1.Secret, bool) {
			secret.Data = access.Trim(secret.Data)
			return secret, true
		},
		Listed: func() {
			s.mu.Lock()
			s.listed = true
			s.mu.Unlock()
			s.changedSecret()
		},
	})
}
