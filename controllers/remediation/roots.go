package remediation

import (
	"context"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/telemetry"
)

// kind is the difference between the kinds of roots.
type kind[T ownerref.Object[T]] struct {
	name string
	all  *objectcache.Store[T]
	// isRoot reports whether an object of the kind is a root.
	isRoot func(T) bool
	// sets returns the MachineSets of a root, and wanted its desired number of machines.
	sets   func(T) []*v1alpha1.MachineSet
	wanted func(T) int32
	// reported returns the reason in the root's status for an open circuit breaker; "" if it has none. report sets it, or, with "",
	// removes it.
	reported func(T) string
	report   func(root T, now time.Time, reason, message string)
	// held returns the message of the root's condition DeletionsHeld; "" if it has none. reportHeld sets it, or, with "", removes it.
	held       func(T) string
	reportHeld func(root T, now time.Time, message string)
	events     events.EventRecorder
}

// roots reconciles the roots of one kind.
type roots[T ownerref.Object[T]] struct {
	kind[T]

	cfg      Config
	tree     *tree
	breakers *Breakers
	commit   *patch.Committer[T]
	runner   *runner.Runner[types.NamespacedName]
	seen     sync.Map // roots whose status was read, by UID
}

func newRoots[T ownerref.Object[T]](
	c *Controller, k kind[T], gate runner.Gate[types.NamespacedName], client func(namespace string) patch.Patcher[T],
) (r *roots[T], err error) {
	r = &roots[T]{kind: k, cfg: c.cfg, tree: c.tree, breakers: c.breakers, commit: patch.New(client)}
	r.runner, err = runner.New(runner.Config[types.NamespacedName]{
		Name: k.name, Reconcile: r.reconcile, Workers: runner.TenantsAtOnce * c.cfg.Workers, Gate: gate,
		Clock: c.cfg.Clock, Metrics: c.cfg.Metrics, Tracer: c.cfg.Tracer,
	})
	return r, err
}

// enqueueIn enqueues all roots of a namespace; with "" those of all namespaces.
func (r *roots[T]) enqueueIn(namespace string) {
	all := r.all.All
	if namespace != "" {
		all = func() []T { return r.all.In(namespace) }
	}
	for _, root := range all() {
		if r.isRoot(root) {
			r.runner.Enqueue(objectcache.Key(root))
		}
	}
}

// watch enqueues roots that appear or change, and removes the state of those that were deleted.
func (r *roots[T]) watch() {
	var none T
	r.all.OnChange(func(before, after T) {
		if after != none {
			if r.isRoot(after) {
				r.runner.Enqueue(objectcache.Key(after))
			}
			return
		}
		r.commit.Forget(before.GetUID())
		r.seen.Delete(before.GetUID())
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
	world, why, err := r.observe(root)
	if err != nil {
		return runner.Result{}, err
	}
	verdict := disruption.Decide(world)
	wanted, reason := root.DeepCopy(), r.reported(root)
	if !world.Deleted { // otherwise its machines are deleted with it
		if verdict.Changed {
			disruption.WriteDisruptions(wanted, verdict.Disruptions)
		}
		reason = reasonOf(verdict.Open)
		r.report(wanted, world.Now, reason, message(verdict.Open, r.cfg.Limits.Thresholds))
	}
	held := heldMessage(why, verdict.Waiting)
	r.reportHeld(wanted, world.Now, held)
	if apiequality.Semantic.DeepEqual(root, wanted) {
		return runner.Result{RequeueAfter: verdict.Wake}, nil
	}
	if _, err := r.commit.Commit(ctx, root, wanted); err != nil {
		if apierrors.IsNotFound(err) {
			return runner.Result{}, nil
		}
		return runner.Result{}, err
	}
	if was := r.reported(root); was != reason {
		r.announce(root, reason, verdict.Open, world.Breakers)
	}
	r.announceHeld(root, held)
	return runner.Result{RequeueAfter: verdict.Wake}, nil
}

// observe collects the input of a decision about a root. The previous holder of a root may have opened a circuit breaker for it.
// why is why deletions are held.
func (r *roots[T]) observe(root T) (w disruption.World, why string, err error) {
	w = disruption.World{Now: r.cfg.Clock.Now(), Limits: r.cfg.Limits, Desired: r.wanted(root), Deleted: root.GetDeletionTimestamp() != nil}
	if r.cfg.Held != nil {
		why, w.Held = r.cfg.Held(root.GetNamespace())
	}
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
	if _, seen := r.seen.LoadOrStore(root.GetUID(), true); !seen {
		r.breakers.remember(r.reported(root), w.Machines)
	}
	w.Breakers = r.breakers.Snapshot()
	return w, why, nil
}

// announce emits an Event when a circuit breaker opens, opens for another reason, or closes.
func (r *roots[T]) announce(root T, reason string, open []disruption.Scope, standing disruption.Snapshot) {
	about, ok := any(root).(runtime.Object)
	switch {
	case !ok:
	case reason == "":
		telemetry.Emit(r.events, about, v1alpha1.EventReplacementResumed, "Unhealthy machines are replaced again")
	default:
		telemetry.Emit(r.events, about, v1alpha1.EventCircuitBreakerOpen, "Unhealthy machines are not replaced for now: "+numbers(open, standing))
	}
}
