package replacement

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
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/brake"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/commit"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/family"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objects"
	"github.com/machine-controller-fleet/machine-controller-fleet/telemetry"
)

// kind is what the roots of one kind differ in.
type kind[T family.Object[T]] struct {
	name string
	all  *objects.Objects[T]
	// isRoot says that an object of the kind is a root.
	isRoot func(T) bool
	// sets of a root, and how many machines it is to have.
	sets   func(T) []*v1alpha1.MachineSet
	wanted func(T) int32
	// told is the reason for which the root's status says that replacement is halted; "" when it does not. tell has it say
	// so, or, with "", not.
	told   func(T) string
	tell   func(root T, now time.Time, reason, message string)
	events events.EventRecorder
}

// roots reconciles the roots of one kind.
type roots[T family.Object[T]] struct {
	kind[T]

	cfg    Config
	tree   *tree
	halts  *Halts
	commit *commit.Committer[T]
	runner *runner.Runner[types.NamespacedName]
	seen   sync.Map // roots whose status was looked at, by UID
}

func newRoots[T family.Object[T]](
	c *Controller, k kind[T], gate runner.Gate[types.NamespacedName], client func(namespace string) commit.Patcher[T],
) (r *roots[T], err error) {
	r = &roots[T]{kind: k, cfg: c.cfg, tree: c.tree, halts: c.halts, commit: commit.New(client)}
	r.runner, err = runner.New(runner.Config[types.NamespacedName]{
		Name: k.name, Reconcile: r.reconcile, Workers: runner.TenantsAtOnce * c.cfg.Workers, Gate: gate,
		Clock: c.cfg.Clock, Metrics: c.cfg.Metrics, Tracer: c.cfg.Tracer,
	})
	return r, err
}

// enqueueIn has all roots of a namespace looked at; with "" those of all namespaces.
func (r *roots[T]) enqueueIn(namespace string) {
	all := r.all.All
	if namespace != "" {
		all = func() []T { return r.all.In(namespace) }
	}
	for _, root := range all() {
		if r.isRoot(root) {
			r.runner.Enqueue(objects.Key(root))
		}
	}
}

// watch has roots looked at that appear or change, and drops what is remembered of those that are gone.
func (r *roots[T]) watch() {
	var none T
	r.all.OnChange(func(before, after T) {
		if after != none {
			if r.isRoot(after) {
				r.runner.Enqueue(objects.Key(after))
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
	if root.GetDeletionTimestamp() != nil || root.GetLabels()[v1alpha1.LabelSlot] == "" {
		return runner.Result{}, nil // its machines go with it; or it is in no slot, and so nobody's
	}
	world, err := r.observe(root)
	if err != nil {
		return runner.Result{}, err
	}
	verdict := brake.Decide(world)
	wanted := root.DeepCopy()
	if verdict.Changed {
		brake.WritePermits(wanted, verdict.Permits)
	}
	reason := reasonOf(verdict.Halted)
	r.tell(wanted, world.Now, reason, message(verdict.Halted, r.cfg.Limits.Thresholds))
	if apiequality.Semantic.DeepEqual(root, wanted) {
		return runner.Result{RequeueAfter: verdict.Wake}, nil
	}
	if _, err := r.commit.Commit(ctx, root, wanted); err != nil {
		if apierrors.IsNotFound(err) {
			return runner.Result{}, nil
		}
		return runner.Result{}, err
	}
	if was := r.told(root); was != reason {
		r.announce(root, reason, verdict.Halted, world.Standing)
	}
	return runner.Result{RequeueAfter: verdict.Wake}, nil
}

// observe gathers what is known of a root. A root that is new to this process may have been halted by whoever had it before.
func (r *roots[T]) observe(root T) (w brake.World, err error) {
	w = brake.World{Now: r.cfg.Clock.Now(), Limits: r.cfg.Limits, Wanted: r.wanted(root)}
	if w.Permits, err = brake.ReadPermits(root); err != nil {
		return w, err
	}
	sets := r.sets(root)
	for _, set := range sets {
		if set.DeletionTimestamp == nil {
			w.Sets = append(w.Sets, set)
		}
	}
	w.Machines = r.tree.members(sets)
	for _, set := range sets {
		w.Undecodable = append(w.Undecodable, r.cfg.View.UndecodableMachines(set)...)
	}
	if _, seen := r.seen.LoadOrStore(root.GetUID(), true); !seen {
		r.halts.remember(r.told(root), w.Machines)
	}
	w.Standing = r.halts.Standing()
	return w, nil
}

// announce tells the user that replacement is halted, for another reason than before, or goes on.
func (r *roots[T]) announce(root T, reason string, halted []brake.Scope, standing brake.Standing) {
	about, ok := any(root).(runtime.Object)
	switch {
	case !ok:
	case reason == "":
		telemetry.Tell(r.events, about, v1alpha1.EventReplacementResumed, "Unhealthy machines are replaced again")
	default:
		telemetry.Tell(r.events, about, v1alpha1.EventReplacementHalted, "Unhealthy machines are not replaced for now: "+numbers(halted, standing))
	}
}
