package remediation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// rootObject is an object that Events can be about.
type rootObject[T any] interface {
	ownerref.Object[T]
	runtime.Object
}

// kind is the difference between the kinds of roots.
type kind[T rootObject[T]] struct {
	name, logKey string

	all *objectcache.Store[T]
	// isRoot reports whether an object of the kind is a root.
	isRoot func(T) bool
	// sets returns the MachineSets of a root, and wanted its desired number of machines.
	sets   func(T) []*v1alpha1.MachineSet
	wanted func(T) int32
	// conditionOf returns a condition of a root; report sets it, or removes it.
	conditionOf func(root T, of conditionType) condition
	report      func(root T, of conditionType, is condition, now time.Time)
	events      events.EventRecorder
}

// roots reconciles the roots of one kind.
type roots[T rootObject[T]] struct {
	kind[T]

	cfg        Config
	tree       *tree
	breakers   *Breakers
	thresholds thresholds
	commit     *patch.Committer[T]
	runner     *runner.Runner[types.NamespacedName]
	seen       sync.Map // the thresholds of roots whose status was read, by UID
	ignored    sync.Map // why annotations of roots are ignored, as it was reported last, by UID
	waiting    sync.Map // the number of machines that wait because deletions are held or the budget is exhausted, by the UID of their root
}

func newRoots[T rootObject[T]](
	c *Controller, k kind[T], gate runner.Gate[types.NamespacedName], client func(namespace string) patch.Patcher[T],
) (r *roots[T], err error) {
	r = &roots[T]{kind: k, cfg: c.cfg, tree: c.tree, breakers: c.breakers, thresholds: c.thresholds, commit: patch.New(client)}
	r.runner, err = runner.New(runner.Config[types.NamespacedName]{
		Name: k.name, LogKey: k.logKey, Reconcile: r.reconcile, Workers: runner.TenantsAtOnce * c.cfg.Workers,
		Gather: c.cfg.Gather, Gate: gate, Clock: c.cfg.Clock, Metrics: c.cfg.Metrics, Tracer: c.cfg.Tracer, Root: r.uid,
	})
	return r, err
}

// uid returns the UID of a root; "" while the view does not show it.
func (r *roots[T]) uid(key types.NamespacedName) types.UID {
	root, known := r.all.Get(key)
	if !known {
		return ""
	}
	return root.GetUID()
}

// enqueueIn enqueues all roots of a namespace; with "" those of all namespaces.
func (r *roots[T]) enqueueIn(namespace string) {
	for _, root := range r.in(namespace) {
		r.runner.Enqueue(objectcache.Key(root))
	}
}

// in returns the roots of a namespace; with "" those of all namespaces.
func (r *roots[T]) in(namespace string) (roots []metav1.Object) {
	all := r.all.All
	if namespace != "" {
		all = func() []T { return r.all.In(namespace) }
	}
	for _, root := range all() {
		if r.isRoot(root) {
			roots = append(roots, root)
		}
	}
	return roots
}

// watch calls changed with objects that appear, change or were deleted, and removes the state of
// those that were deleted.
func (r *roots[T]) watch(changed func(T)) {
	var none T
	r.all.OnChange(func(before, after T) {
		for _, root := range []T{before, after} {
			if root != none {
				changed(root)
			}
		}
		if after != none {
			return
		}
		r.commit.Forget(before.GetUID())
		r.seen.Delete(before.GetUID())
		r.ignored.Delete(before.GetUID())
		r.waiting.Delete(before.GetUID())
	})
}

// reconcile runs one pass over one root.
func (r *roots[T]) reconcile(ctx context.Context, key types.NamespacedName) (runner.Result, error) {
	cached, known := r.all.Get(key)
	if !known || !r.isRoot(cached) {
		return runner.Result{}, nil
	}
	root := r.commit.Newest(cached)
	if root.GetLabels()[v1alpha1.LabelSlot] == "" {
		return runner.Result{}, nil // it has no holder
	}
	telemetry.About(ctx, root)
	world, why, err := r.observe(root)
	switch {
	case errors.Is(err, errNotCounted):
		r.breakers.recount()
		return runner.Result{RequeueAfter: spacing}, nil
	case errors.Is(err, errNamespacesUnknown):
		return runner.Result{}, nil // it is enqueued when they are known
	case err != nil:
		return runner.Result{}, err
	}
	verdict, grant, err := r.decide(ctx, root, world)
	if err != nil {
		return runner.Result{}, err
	}
	telemetry.Decided(trace.SpanFromContext(ctx), verdict.Name(), func() (string, string) { return "", verdict.Reason() })
	r.waiting.Store(root.GetUID(), verdict.Waiting+verdict.Unreserved)
	shown := func(of conditionType) condition { return r.conditionOf(root, of) }
	breaker, away, held := shown(v1alpha1.MachineDeploymentCircuitBreakerOpen), awayOf(world.Away), heldOf(why.held, verdict, grant)
	if !world.Deleted { // otherwise its machines are deleted with it
		breaker = breakerOf(verdict.Open, world.Limits.Thresholds, why.ignored)
	}
	isChanged := verdict.Changed && !world.Deleted || breaker != shown(v1alpha1.MachineDeploymentCircuitBreakerOpen) ||
		away != shown(v1alpha1.MachineDeploymentAPIServerAway) || held != shown(v1alpha1.MachineDeploymentDeletionsHeld)
	if isChanged {
		wanted := root.DeepCopy()
		if !world.Deleted {
			disruption.WriteDisruptions(wanted, verdict.Disruptions)
		}
		r.report(wanted, v1alpha1.MachineDeploymentCircuitBreakerOpen, breaker, world.Now)
		r.report(wanted, v1alpha1.MachineDeploymentAPIServerAway, away, world.Now)
		r.report(wanted, v1alpha1.MachineDeploymentDeletionsHeld, held, world.Now)
		if _, err := r.commit.Commit(ctx, root, wanted); err != nil {
			return runner.Result{}, err
		}
	}
	lastIgnored, _ := r.ignored.Swap(root.GetUID(), why.ignored)
	if !isChanged {
		return runner.Result{RequeueAfter: verdict.Wake}, nil
	}
	r.announce(ctx, root, v1alpha1.MachineDeploymentAPIServerAway, away, event{v1alpha1.EventAPIServerAway, away.Message},
		event{
			v1alpha1.EventAPIServerBack,
			"The API servers of target and control cluster answer again; the health timeouts of unhealthy machines begin anew",
		})
	r.announce(ctx, root, v1alpha1.MachineDeploymentCircuitBreakerOpen, breaker,
		event{v1alpha1.EventCircuitBreakerOpen, "Unhealthy machines are not replaced for now: " + numbers(verdict.Open, world.Breakers)},
		event{v1alpha1.EventReplacementResumed, "Unhealthy machines are replaced again"})
	if why.ignored != "" && why.ignored != lastIgnored {
		telemetry.Emit(ctx, r.events, root, v1alpha1.ReasonThresholdsIgnored, why.ignored)
	}
	r.announce(ctx, root, v1alpha1.MachineDeploymentDeletionsHeld, held, event{v1alpha1.EventDeletionsHeld, held.Message},
		event{v1alpha1.EventDeletionsReleased, "No machine waits any more for the end of a hold of deletions, or for the deletion budget"})
	return runner.Result{RequeueAfter: verdict.Wake}, nil
}

// reasons are reported in addition to a verdict: why annotations are ignored, and why deletions are
// held; "" if not.
type reasons struct{ ignored, held string }

// observe collects the input of a decision about a root. Errors: errNotCounted,
// errNamespacesUnknown, an annotation with disruptions that another client has written.
func (r *roots[T]) observe(root T) (w disruption.World, why reasons, err error) {
	w = disruption.World{Now: r.cfg.Clock.Now(), Limits: r.cfg.Limits, Desired: r.wanted(root), Deleted: root.GetDeletionTimestamp() != nil}
	why.held, w.Held = r.cfg.Held(root.GetNamespace())
	cluster, err := r.cfg.Targets.For(root.GetNamespace())
	if err != nil {
		return w, why, fmt.Errorf("find the target cluster of namespace %s: %w", root.GetNamespace(), err)
	}
	servers := r.cfg.Servers.Of(root, cluster)
	w.Away, w.NotBefore = servers.Away, servers.Settled()
	if w.Disruptions, err = disruption.ReadDisruptions(root); err != nil {
		return w, why, err
	}
	sets := r.sets(root)
	for _, set := range sets {
		if set.DeletionTimestamp == nil {
			w.Sets = append(w.Sets, set)
		}
	}
	w.Machines, w.Undecodable = r.tree.members(sets)
	if w.Limits.Thresholds, why.ignored, err = r.thresholds.of(root, r.breakers.Snapshots()); err != nil {
		return w, why, err
	}
	if r.cfg.Budget != nil {
		why.ignored = strings.Trim(why.ignored+". "+r.cfg.Budget.Ignored(root.GetNamespace()), ". ")
	}
	r.restore(root, w.Limits.Thresholds, w.Machines)
	w.Breakers = r.breakers.Snapshots().Of[w.Limits.Thresholds].Snapshot
	if len(w.Breakers.Open) > 0 {
		r.tree.locate(w.Machines)
	}
	return w, why, nil
}

// restore keeps the circuit breakers of a root open that are open according to its status, where
// this process does not know them: the previous holder may have opened them, or this process, with
// other thresholds. Only thresholds that would have opened them later are reason to decide anew:
// they are set to have machines replaced again.
func (r *roots[T]) restore(root T, t disruption.Thresholds, machines []disruption.Member) {
	before, _ := r.seen.Swap(root.GetUID(), t)
	if last, ok := before.(disruption.Thresholds); ok && (last == t || t.OpensLaterThan(last)) {
		return
	}
	if is := r.conditionOf(root, v1alpha1.MachineDeploymentCircuitBreakerOpen); is.IsTrue() {
		r.tree.locate(machines)
		r.breakers.restore(t, is.Reason, machines)
	}
}
