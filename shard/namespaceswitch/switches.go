package namespaceswitch

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespaceswitch/policy"
)

// Config is the configuration of Switches. All fields but Metrics and Tracer are required.
type Config struct {
	// Deployments and Pods are those of the control cluster, in all namespaces that are served; only
	// those of switches are listed.
	Deployments, Pods objectcache.Source
	// Client writes the status of pods.
	Client corev1client.PodsGetter
	// SlotOf returns the slot of a namespace's name, whose holder reports. Gate admits namespaces by
	// it, and Holds reports whether this replica holds a slot.
	SlotOf func(namespace string) int
	Gate   runner.Gate[string]
	Holds  func(slot int) bool
	// Selected reports whether a namespace is the fleet's. On others only that none serves them is
	// reported: their fleet reports all else.
	Selected func(namespace string) bool
	// Service returns how this replica serves a namespace whose slot it holds.
	Service func(namespace string) policy.Service
	// Clock is the time of the control cluster.
	Clock   clock.WithTicker
	Metrics *runner.Metrics
	Tracer  trace.Tracer
}

// Validate returns an error that names the fields that are missing.
func (c Config) Validate() error { return required.Fields(c, "Metrics", "Tracer") }

// Switches are the switches of the namespaces. New returns them; nil has all namespaces switched
// on. They are safe for concurrent use.
type Switches struct {
	cfg         Config
	runner      *runner.Runner[string]
	deployments *objectcache.Store[*appsv1.Deployment]
	pods        *objectcache.Store[*corev1.Pod]
	changes     []func(namespace string)

	mu      sync.Mutex
	listed  map[string]bool        // the kinds that are listed
	on      map[string]policy.Time // the namespaces that are on
	off     map[string]time.Time   // when those were switched off that have a Deployment and are off
	running map[string]map[*pass]struct{}
}

// pass is work in a namespace that runs.
type pass struct{ cancel context.CancelCauseFunc }

// New returns Switches, all of them off until Run has listed them. Errors: fields that are missing.
func New(cfg Config) (*Switches, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Switches{
		cfg: cfg, deployments: objectcache.NewStore[*appsv1.Deployment](), pods: objectcache.NewStore[*corev1.Pod](),
		listed: map[string]bool{}, on: map[string]policy.Time{}, off: map[string]time.Time{}, running: map[string]map[*pass]struct{}{},
	}
	s.deployments.OnChange(func(before, after *appsv1.Deployment) { s.update(cmp.Or(after, before).Namespace) })
	s.pods.OnChange(func(before, after *corev1.Pod) { s.runner.Enqueue(cmp.Or(after, before).Namespace) })
	var err error
	s.runner, err = runner.New(runner.Config[string]{
		Name: runner.NamespaceSwitches, Reconcile: s.report, Workers: workers, Tenant: func(namespace string) string { return namespace },
		Gate: cfg.Gate, Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer,
	})
	return s, err
}

// OnChange adds a function that is called with every namespace that was switched on or off, after
// IsOn has changed. It must return soon. Call OnChange before Run.
func (s *Switches) OnChange(changed func(namespace string)) {
	if s != nil {
		s.changes = append(s.changes, changed)
	}
}

// Names of the kinds in logs and errors.
const kindDeployments, kindPods = "Deployments", "Pods"

// Run watches the switches and reports on their pods until ctx ends.
func (s *Switches) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() {
		named := fields.OneTermEqualSelector(metav1.ObjectNameField, policy.Deployment).String()
		objectcache.Watch(ctx, kindDeployments, s.cfg.Deployments.Fields(named), "", &objectcache.Mirror[*appsv1.Deployment]{
			Store:  s.deployments,
			Mine:   func() []metav1.Object { return s.deployments.Each() },
			Keep:   essential,
			Listed: func() { s.list(kindDeployments) },
		})
	})
	running.Go(func() {
		objectcache.Watch(ctx, kindPods, s.cfg.Pods, policy.Selector, &objectcache.Mirror[*corev1.Pod]{
			Store: s.pods, Mine: func() []metav1.Object { return s.pods.Each() },
			Keep:   func(pod *corev1.Pod) (*corev1.Pod, bool) { return pod, policy.IsStandIn(pod) },
			Listed: func() { s.list(kindPods) },
		})
	})
	running.Go(func() { s.runner.Run(ctx) })
	running.Wait()
}

// essential keeps of a Deployment what policy.IsOn needs.
func essential(d *appsv1.Deployment) (*appsv1.Deployment, bool) {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name, UID: d.UID, ResourceVersion: d.ResourceVersion, DeletionTimestamp: d.DeletionTimestamp,
		},
		Spec: appsv1.DeploymentSpec{Replicas: d.Spec.Replicas},
	}, true
}

// list records that a kind is listed. Switches are known when both are: a pod has since when its
// namespace is on.
func (s *Switches) list(kind string) {
	s.mu.Lock()
	first := !s.isListed()
	s.listed[kind] = true
	first = first && s.isListed()
	if first {
		for _, d := range s.deployments.All() {
			if policy.IsOn(d) {
				s.on[d.Namespace] = policy.Recorded(s.pods.In(d.Namespace))
			}
		}
	}
	known := slices.Collect(maps.Keys(s.on))
	s.mu.Unlock()
	for _, namespace := range known {
		if first {
			s.notify(namespace)
		}
	}
	for _, d := range s.deployments.All() {
		s.update(d.Namespace) // what has changed since
	}
}

func (s *Switches) isListed() bool { return s.listed[kindDeployments] && s.listed[kindPods] }

// update brings a namespace to the state of its switch.
func (s *Switches) update(namespace string) {
	s.mu.Lock()
	d, exists := s.deployments.Get(keyOf(namespace))
	is, now := policy.IsOn(d), s.cfg.Clock.Now()
	_, was := s.on[namespace]
	if !s.isListed() || is == was {
		if !exists {
			delete(s.off, namespace)
		}
		s.mu.Unlock()
		return
	}
	var interrupted []*pass
	if is {
		s.on[namespace] = policy.Time{Off: s.off[namespace], On: now}
		delete(s.off, namespace)
	} else {
		delete(s.on, namespace)
		if exists {
			s.off[namespace] = now
		}
		interrupted = slices.Collect(maps.Keys(s.running[namespace]))
	}
	s.mu.Unlock()
	for _, pass := range interrupted {
		pass.cancel(errSwitchedOff)
	}
	if s.cfg.Holds(s.cfg.SlotOf(namespace)) {
		klog.Background().Info("Switched namespace", "namespace", namespace, "on", is)
	}
	s.notify(namespace)
}

func (s *Switches) notify(namespace string) {
	for _, changed := range s.changes {
		changed(namespace)
	}
	s.runner.Enqueue(namespace)
}

func keyOf(namespace string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: policy.Deployment}
}

// IsOn reports whether the fleet may work in a namespace: its switch is on, and known.
func (s *Switches) IsOn(namespace string) bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, on := s.on[namespace]
	return on
}

// Outage returns the last time in which a namespace was switched off, as an outage: the clocks of
// its machines begin anew after it.
func (s *Switches) Outage(namespace string) reach.Fact {
	if s == nil {
		return reach.Fact{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.on[namespace]
	return reach.Fact{From: last.Off, Back: last.On}
}

// begin begins work in a namespace that is on, with a context that ends when it is switched off.
func (s *Switches) begin(ctx context.Context, namespace string) (on context.Context, end func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok = s.on[namespace]; !ok {
		return nil, nil, false
	}
	p := &pass{}
	on, p.cancel = context.WithCancelCause(ctx)
	if s.running[namespace] == nil {
		s.running[namespace] = map[*pass]struct{}{}
	}
	s.running[namespace][p] = struct{}{}
	return on, func() {
		p.cancel(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.running[namespace], p); len(s.running[namespace]) == 0 {
			delete(s.running, namespace)
		}
	}, true
}

// Opened enqueues the namespaces whose slots this replica has begun to serve.
func (s *Switches) Opened(slots []int) {
	if s == nil {
		return
	}
	for _, d := range s.deployments.All() {
		if slices.Contains(slots, s.cfg.SlotOf(d.Namespace)) {
			s.runner.Enqueue(d.Namespace)
		}
	}
}

// Changed enqueues a namespace which may be served in another way than before.
func (s *Switches) Changed(namespace string) { s.runner.Enqueue(namespace) }
