package namespacelease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespacelease/policy"
)

const (
	// forGood is the duration in a Lease of the fleet. It is written once: the fleet does not renew,
	// and releases the Lease.
	forGood = math.MaxInt32 * time.Second
	// retry is when to decide again after a write that conflicted, and recheckAfter when to try again
	// to create a Lease after the namespace was terminating: it may have been created anew.
	retry, recheckAfter = time.Second, 5 * time.Second
)

// names returns the names of the two Leases, in the order of policy.World.
func names() [2]string {
	return [2]string{v1alpha1.LeaseManager, v1alpha1.LeaseMachineController}
}

// Key is the work of the holder of one slot for one namespace.
type Key struct {
	Namespace string
	Slot      int
}

// String returns the key for logs and traces.
func (k Key) String() string { return k.Namespace + "/slot " + strconv.Itoa(k.Slot) }

// Config is the configuration of NamespaceLeases. All fields but Namespace, Selection, Metrics
// and Tracer are required.
type Config struct {
	// Client reads and writes Leases, Metadata lists roots, in the control cluster.
	Client   kubeclient.Interface
	Metadata metadata.Interface
	// Namespace is the only namespace that is served; "" means all.
	Namespace string
	// Fleet is the holderIdentity of the fleet: the same for all replicas, and different from that of
	// any other fleet.
	Fleet string
	// SlotOf returns the slot of a namespace's name.
	SlotOf func(namespace string) int
	// Selection returns whether a namespace is selected for the fleet; nil means that all are. With it
	// SlotOf has to be the slot of all work in the namespace: a namespace is left by one replica.
	Selection func(namespace string) policy.Selection
	// Gate admits the work of a slot, with its ownership in the context.
	Gate runner.Gate[Key]
	// Refused is called for each slot with roots in a namespace that is not served, with the reason:
	// at once, or after policy.Unchanged if the namespace is not selected, and again at least every
	// policy.Unchanged, for roots that were created since. known is the result that it returned
	// before for the same reason, nil at first.
	Refused func(refused Key, why Refusal, known map[types.UID]bool) map[types.UID]bool
	Clock   clock.WithTicker
	Metrics *runner.Metrics
	Tracer  trace.Tracer
}

// NamespaceLeases acquires and releases the Leases. New returns one.
type NamespaceLeases struct {
	cfg       Config
	runner    *runner.Runner[Key]
	informers [2]cache.SharedIndexInformer
	changes   []func(namespace string)

	mu       sync.Mutex
	since    [2]map[string]firstSeen // when the current version of each Lease was first seen, by namespace
	reported map[Key]refusal         // by slots with work in namespaces whose Leases another manager holds
	// ending are the namespaces in which nothing can be created, according to the last attempt.
	ending map[string]bool
	selection
}

// firstSeen is when a version of a Lease was first seen.
type firstSeen struct {
	version string
	at      time.Time
}

// Validate returns an error that names the fields that are missing.
func (c Config) Validate() error {
	return required.Fields(c, "Namespace", "Selection", "Metrics", "Tracer")
}

// New returns NamespaceLeases, which watch from Start on. Errors: fields that are missing.
func New(cfg Config) (*NamespaceLeases, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a := &NamespaceLeases{cfg: cfg, reported: map[Key]refusal{}, ending: map[string]bool{}, selection: newSelection()}
	var errs []error
	for i, name := range names() {
		a.since[i] = map[string]firstSeen{}
		a.informers[i] = leaseInformer(cfg.Client.CoordinationV1().Leases(cfg.Namespace), name)
		_, err := a.informers[i].AddEventHandler(objectcache.Handler(func(before, after *coordinationv1.Lease) { a.changed(i, before, after) }))
		errs = append(errs, err)
	}
	run, err := runner.New(runner.Config[Key]{
		Name: runner.NamespaceLeases, Reconcile: a.reconcile, Workers: 4 * runner.TenantsAtOnce,
		Tenant: func(key Key) string { return key.Namespace }, Gate: cfg.Gate, Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer,
	})
	a.runner = run
	return a, errors.Join(append(errs, err)...)
}

// leaseInformer watches the Leases of a name.
func leaseInformer(client coordinationclient.LeaseInterface, name string) cache.SharedIndexInformer {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector
			return client.Watch(ctx, options)
		},
	}, client), &coordinationv1.Lease{}, 0, cache.Indexers{})
}

// OnChange adds a function that is called with every namespace whose Leases have another holder, or
// can have none any more: it may be served now, or not any more. Call OnChange before Start.
func (l *NamespaceLeases) OnChange(changed func(namespace string)) {
	l.changes = append(l.changes, changed)
}

func (l *NamespaceLeases) notify(namespace string) {
	for _, changed := range l.changes {
		changed(namespace)
	}
}

// Start begins to watch, until ctx ends. It returns when the Leases are listed, or ctx has ended.
func (l *NamespaceLeases) Start(ctx context.Context) error {
	for _, informer := range l.informers {
		go informer.RunWithContext(ctx)
	}
	for i, informer := range l.informers {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return fmt.Errorf("the Leases %s could not be listed in time", names()[i])
		}
	}
	return nil
}

// Run acquires and releases Leases until ctx ends.
func (l *NamespaceLeases) Run(ctx context.Context) { l.runner.Run(ctx) }

// Opened enqueues the namespaces whose slots this replica has begun to serve.
func (l *NamespaceLeases) Opened(slots []int) {
	opened := map[int]bool{}
	for _, slot := range slots {
		opened[slot] = true
	}
	for _, informer := range l.informers {
		for _, obj := range informer.GetStore().List() {
			if lease, ok := obj.(*coordinationv1.Lease); ok && opened[l.cfg.SlotOf(lease.Namespace)] {
				l.runner.Enqueue(Key{lease.Namespace, l.cfg.SlotOf(lease.Namespace)})
			}
		}
	}
}

// Served reports whether the fleet may work in a namespace. slot is the one in which there is work:
// while the namespace is not served, its holder acquires the Leases as soon as they are free,
// without another call.
func (l *NamespaceLeases) Served(namespace string, slot int) bool {
	leases, _ := l.see(namespace)
	key, selected := Key{namespace, slot}, l.selected(namespace)
	if selected == policy.NotSelected {
		l.report(key, refusalOf(l.keptOut(leases, selected), selected))
		return false
	}
	if policy.Served(l.cfg.Fleet, leases, false) {
		if !l.isProven(namespace) {
			l.runner.Enqueue(key)
			return false
		}
		return true
	}
	if policy.Served(l.cfg.Fleet, leases, l.isEnding(namespace)) {
		l.runner.EnqueueAfter(key, recheckAfter)
		return true
	}
	verdict := l.keptOut(leases, selected)
	if selected != policy.Undetermined || l.waits(namespace) {
		l.runner.EnqueueAfter(key, verdict.Wake)
	}
	l.report(key, refusalOf(verdict, selected))
	return false
}

// Holds reports whether the fleet holds both Leases of a namespace, and may keep them. It acquires
// none, unlike Served.
func (l *NamespaceLeases) Holds(namespace string) bool {
	leases, _ := l.see(namespace)
	return l.selected(namespace) != policy.NotSelected && policy.Served(l.cfg.Fleet, leases, false)
}

// Serves reports whether the fleet holds both Leases of a namespace, or they are gone because it is
// terminating. It acquires none, unlike Served.
func (l *NamespaceLeases) Serves(namespace string) bool {
	leases, _ := l.see(namespace)
	return l.selected(namespace) != policy.NotSelected && policy.Served(l.cfg.Fleet, leases, l.isEnding(namespace))
}

// Held returns the namespaces of which the fleet holds both Leases, by name.
func (l *NamespaceLeases) Held() []string {
	var namespaces []string
	for _, key := range l.informers[0].GetStore().ListKeys() {
		if namespace, _, _ := strings.Cut(key, "/"); l.Holds(namespace) {
			namespaces = append(namespaces, namespace)
		}
	}
	slices.Sort(namespaces)
	return namespaces
}

// KeptOut reports whether another manager serves a namespace, or may do so because the Leases are
// not listed yet, or because the namespace is not known to be selected. If no other does, there may
// be work without any root, such as the release of a MachineClass.
func (l *NamespaceLeases) KeptOut(namespace string) bool {
	other, known := l.Other(namespace)
	return other != "" || !known || l.selected(namespace) != policy.Selected
}

// Other returns the manager that keeps the fleet out of a namespace, "" if there is none. It is not
// known before the Leases are listed.
func (l *NamespaceLeases) Other(namespace string) (other string, known bool) {
	for _, informer := range l.informers {
		if !informer.HasSynced() {
			return "", false
		}
	}
	leases, _ := l.see(namespace)
	return l.keptOut(leases, l.selected(namespace)).Other, true
}

// Unheld reports whether no manager has held a namespace for policy.Unchanged.
func (l *NamespaceLeases) Unheld(namespace string) bool {
	leases, _ := l.see(namespace)
	for _, lease := range leases {
		if lease.Holder != "" || l.cfg.Clock.Since(lease.Since) < policy.Unchanged {
			return false
		}
	}
	return true
}

// keptOut returns a verdict with the holder that keeps the fleet out, and the minimum time; ""
// means no other holder.
func (l *NamespaceLeases) keptOut(leases [2]policy.Lease, selected policy.Selection) policy.Verdict {
	return policy.Decide(policy.World{Now: l.cfg.Clock.Now(), Fleet: l.cfg.Fleet, Leases: leases, Selection: selected})
}

// changed records when a Lease changed. A renewal starts the time again; keys are enqueued only
// when the Lease was created, deleted, or changed hands.
func (l *NamespaceLeases) changed(which int, was, is *coordinationv1.Lease) {
	namespace := cmp.Or(is, was).Namespace
	moved := was == nil || is == nil || holderOf(was) != holderOf(is)
	l.mu.Lock()
	if moved {
		l.forget(namespace)
	}
	switch {
	case is == nil:
		delete(l.since[which], namespace)
	case was == nil || was.ResourceVersion != is.ResourceVersion:
		l.since[which][namespace] = firstSeen{is.ResourceVersion, l.cfg.Clock.Now()}
		if was == nil {
			delete(l.ending, namespace) // the namespace was created anew with that name
		}
	}
	l.mu.Unlock()
	if moved {
		l.runner.Enqueue(Key{namespace, l.cfg.SlotOf(namespace)})
		l.notify(namespace)
	}
}

func holderOf(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// cached returns a Lease from the watch's cache; nil if there is none.
func (l *NamespaceLeases) cached(which int, namespace string) *coordinationv1.Lease {
	obj, _, err := l.informers[which].GetStore().GetByKey(namespace + "/" + names()[which])
	if err != nil {
		return nil
	}
	lease, _ := obj.(*coordinationv1.Lease)
	return lease
}

// see returns the cached Leases of a namespace, for a decision and for the writes that follow from
// it.
func (l *NamespaceLeases) see(namespace string) (leases [2]policy.Lease, cached [2]*coordinationv1.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range leases {
		lease := l.cached(i, namespace)
		if lease == nil {
			continue
		}
		cached[i] = lease
		leases[i] = policy.Lease{Exists: true, Holder: holderOf(lease), Since: l.cfg.Clock.Now()}
		if seen := l.since[i][namespace]; seen.version == lease.ResourceVersion { // otherwise the handler has not run for this version yet
			leases[i].Since = seen.at
		}
		if lease.Spec.LeaseDurationSeconds != nil {
			leases[i].Duration = time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
		}
	}
	return leases, cached
}

// reconcile acquires the Leases of a namespace for the holder of a slot with work there, and
// acquires or releases them for the holder of the slot of the namespace's name.
func (l *NamespaceLeases) reconcile(ctx context.Context, key Key) (runner.Result, error) {
	leases, cached := l.see(key.Namespace)
	w := policy.World{
		Now: l.cfg.Clock.Now(), Fleet: l.cfg.Fleet, Leases: leases, MayRelease: key.Slot == l.cfg.SlotOf(key.Namespace),
		Selection: l.selected(key.Namespace),
	}
	if w.Selection == policy.NotSelected {
		w.Busy = l.leave(key.Namespace)
	} else if err := l.prove(ctx, key.Namespace, leases); err != nil {
		return runner.Result{}, err
	}
	verdict := policy.Decide(w)
	if verdict.Do == policy.ListRoots {
		var err error
		if w.Roots, err = l.listRoots(ctx, key.Namespace); err != nil {
			return runner.Result{}, err
		}
		verdict = policy.Decide(w)
	}
	if why := refusalOf(verdict, w.Selection); why != (Refusal{}) {
		l.reportRoots(key)
		if why.Unselected && l.isReported(key) {
			verdict.Wake = policy.Unchanged
		}
	}
	for i, concerned := range verdict.Which {
		if !concerned {
			continue
		}
		if done, err := l.write(ctx, i, key.Namespace, cached[i], verdict.Do); !done {
			return runner.Result{RequeueAfter: retry}, err // without the first Lease the second is not acquired either
		}
	}
	return runner.Result{RequeueAfter: verdict.Wake}, nil
}

// ends records that nothing can be created in a namespace any more.
func (l *NamespaceLeases) ends(namespace string) {
	l.mu.Lock()
	news := !l.ending[namespace]
	l.ending[namespace] = true
	l.mu.Unlock()
	if news {
		l.notify(namespace)
	}
}

func (l *NamespaceLeases) isEnding(namespace string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ending[namespace]
}

// write acquires or releases a Lease; done is false if it has changed since it was read. cached is
// the version that was read, nil if there was none.
func (l *NamespaceLeases) write(
	ctx context.Context, which int, namespace string, cached *coordinationv1.Lease, do policy.Action,
) (done bool, err error) {
	name := names()[which]
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if cached != nil {
		lease = cached.DeepCopy()
	}
	holder, duration, now := l.cfg.Fleet, int32(forGood/time.Second), metav1.NewMicroTime(l.cfg.Clock.Now())
	if do == policy.Release {
		holder, duration = "", 1 // as the elector of Machine Controller Manager releases it
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &holder, &duration
	lease.Spec.AcquireTime, lease.Spec.RenewTime = &now, &now
	leases := l.cfg.Client.CoordinationV1().Leases(namespace)
	if cached == nil {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err):
		return false, nil // the watch will show the change
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		l.ends(namespace)
		return true, nil
	case err != nil:
		return false, fmt.Errorf("write Lease %s/%s: %w", namespace, name, err)
	}
	klog.FromContext(ctx).Info("Changed holder of Machine Controller Manager's Lease", "namespace", namespace, "lease", name, "holder", holder)
	return true, nil
}

// listRoots lists whether a namespace has any root or any descendant of one.
func (l *NamespaceLeases) listRoots(ctx context.Context, namespace string) (policy.Roots, error) {
	for _, resource := range []string{"machinedeployments", "machinesets", "machines"} {
		list, err := l.cfg.Metadata.Resource(v1alpha1.SchemeGroupVersion.WithResource(resource)).Namespace(namespace).
			List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return policy.Unknown, fmt.Errorf("look for %s in namespace %s: %w", resource, namespace, err)
		}
		if len(list.Items) > 0 {
			return policy.Some, nil
		}
	}
	return policy.None, nil
}
