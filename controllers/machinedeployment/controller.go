package machinedeployment

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// The status may be older than the machines by statusPace, which is longer than that of a set, so
// that the sets are sized before the status is written; and by the slow pace while machines are
// replaced one by one, or some wait to recover.
const (
	statusPace     = time.Second
	slowStatusPace = 10 * time.Second
)

// Config is the configuration of the controller. Machines, Metadata, View, Events and Clock are
// required.
type Config struct {
	// Machines writes to the control cluster; Metadata lists there, uncached.
	Machines machineclient.MachineV1alpha1Interface
	Metadata metadata.Interface
	// View shows the objects of the control cluster that this replica may reconcile.
	View *objectcache.View
	// Targets find the Nodes that are updated in place. Nil means that there are none.
	Targets target.Resolver
	Events  events.EventRecorder
	Clock   clock.WithTicker
	Gate    runner.Gate[types.NamespacedName]
	// Workers is how many keys of one namespace are reconciled at the same time; of all namespaces,
	// runner.TenantsAtOnce times as many.
	Workers int
	// Predict returns a set that is about to be written, with what its own controller would write on
	// it next, so that both are one write. isReplaced is the result of rollout.IsReplaced for it. With
	// nil, the set's own controller writes that itself.
	Predict func(ctx context.Context, set *v1alpha1.MachineSet, isReplaced bool) *v1alpha1.MachineSet
	// Written has the versions of sets that this process has written. With nil, it has only those of
	// this controller.
	Written *patch.Latest[*v1alpha1.MachineSet]
	// CountMinReady applies minReadySeconds to deployments that do not specify whether it applies.
	CountMinReady bool
	// NoComponentsTaint omits the taint critical-components-not-ready from Nodes that were updated in
	// place, where their deployment does not specify whether they have it.
	NoComponentsTaint bool
	// KeepFromAutoscaler prevents the cluster-autoscaler from removing Nodes of a deployment while its
	// machines are replaced.
	KeepFromAutoscaler bool
	// Gather is for how long changes of machines are gathered for one pass; 0 means not at all.
	Gather  time.Duration
	Metrics *runner.Metrics
	Tracer  trace.Tracer
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error {
	return required.Fields(c, "Targets", "Gate", "Workers", "Predict", "Written", "Gather", "Metrics", "Tracer")
}

// Controller reconciles MachineDeployments. Create it with New, before the View has objects.
type Controller struct {
	cfg           Config
	runner        *runner.Runner[types.NamespacedName]
	pass          runner.Pass[*rollout.World, rollout.Verdict]
	deployments   *patch.Committer[*v1alpha1.MachineDeployment]
	sets          *patch.Committer[*v1alpha1.MachineSet]
	machines      *patch.Committer[*v1alpha1.Machine]
	pace          *patch.Pace
	children      *ownerref.Children[*v1alpha1.MachineSet]
	orphansListed sync.Map // selectors for which orphans of any slot were listed, and adopted, by UID of the deployment
	metadata      *decode.Metadata
	unseen        sync.Map // sets that the cache does not show yet, by UID of the deployment; see sees
	rollouts      sync.Map // the rollout, and when it was first observed, by UID of the deployment; for traces
}

// New returns a Controller, and registers its event handlers at the View. Errors: those of
// cfg.Validate, negative Workers, and no target cluster that can be found.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Written == nil {
		cfg.Written = patch.NewLatest[*v1alpha1.MachineSet]()
	}
	c := &Controller{
		cfg: cfg, pace: patch.NewPace(statusPace, slowStatusPace),
		deployments: patch.New(func(ns string) patch.Patcher[*v1alpha1.MachineDeployment] {
			return cfg.Machines.MachineDeployments(ns)
		}),
		sets:     patch.NewSharing(cfg.Written, func(ns string) patch.Patcher[*v1alpha1.MachineSet] { return cfg.Machines.MachineSets(ns) }),
		machines: patch.New(func(ns string) patch.Patcher[*v1alpha1.Machine] { return cfg.Machines.Machines(ns) }),
		metadata: decode.NewMetadata(cfg.Metadata),
	}
	if c.cfg.Targets == nil {
		c.cfg.Targets = target.None{}
	}
	c.pass = runner.Pass[*rollout.World, rollout.Verdict]{
		Decide: c.decide, Act: c.step, Rest: c.rest,
		Defers: func(v rollout.Verdict) bool { return v.Do == rollout.Create },
	}
	var err error
	c.runner, err = runner.New(runner.Config[types.NamespacedName]{
		Name: runner.MachineDeployment, CreatesInNamespace: true, LogKey: telemetry.KeyMachineDeployment, Reconcile: c.reconcile,
		Workers: runner.TenantsAtOnce * cfg.Workers, Gather: cfg.Gather, Gate: cfg.Gate, Clock: cfg.Clock, Metrics: cfg.Metrics,
		Tracer: cfg.Tracer, Root: c.root, Stage: c.stage,
	})
	if err != nil {
		return nil, err
	}
	c.watch()
	return c, nil
}

// Run reconciles until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.runner.Run(ctx) }

// reconcile runs one pass over one deployment.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (runner.Result, error) {
	cached, known := c.cfg.View.Deployments.Get(key)
	if !known {
		return runner.Result{}, nil
	}
	defer c.forgetIfGone(cached)
	newest := c.deployments.Newest(cached)
	telemetry.About(ctx, newest)
	w, err := c.observe(ctx, newest)
	if err != nil {
		return runner.Result{}, err
	}
	return c.pass.Run(ctx, &w)
}

// root returns the UID of a deployment, which is its own root; "" while the view does not show it.
func (c *Controller) root(key types.NamespacedName) types.UID {
	d, known := c.cfg.View.Deployments.Get(key)
	if !known {
		return ""
	}
	return d.UID
}

// step takes the action of a verdict, and emits its Events when that has succeeded.
func (c *Controller) step(ctx context.Context, w *rollout.World, verdict rollout.Verdict) (wait time.Duration, err error) {
	err = c.act(ctx, w, verdict)
	if verdict.Do == rollout.Save && apierrors.IsInvalid(err) && w.Deployment.Spec.RollbackTo != nil && w.Done.RollbackRefused == "" {
		w.Done.RollbackRefused = err.Error() // the template is older than a rule of the definitions
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if verdict.Do != rollout.Create || !w.Done.Collided {
		c.report(ctx, w.Deployment, verdict.Events)
	}
	return 0, nil
}

func (c *Controller) report(ctx context.Context, d *v1alpha1.MachineDeployment, events []rollout.Event) {
	for _, event := range events {
		telemetry.Emit(ctx, c.cfg.Events, d, event.Reason, event.Message)
	}
}

// rest writes the result of the pass, with the status when the pace allows it.
func (c *Controller) rest(ctx context.Context, w *rollout.World, verdict rollout.Verdict) (runner.Result, error) {
	wake := verdict.Wake
	if w.Done.AdoptionRace > 0 {
		wake = machinefacts.Sooner(wake, machinefacts.LateCache)
	}
	again := runner.Result{RequeueAfter: wake}
	if verdict.Deployment == nil {
		return again, nil
	}
	desired := verdict.Deployment
	if wait := c.pace.Wait(w.Deployment, change(w.Deployment, desired, verdict.Replacing || anyUnhealthy(w.Machines)),
		c.cfg.Clock.Now()); wait > 0 {
		// The names of deleted machines are written with the status: any other write of a deployment may
		// cause a conflict for the cluster-autoscaler, which tries again seconds later.
		return runner.Result{RequeueAfter: machinefacts.Sooner(wait, wake)}, nil
	}
	written, err := c.deployments.Commit(ctx, w.Deployment, desired)
	if apierrors.IsNotFound(err) {
		return runner.Result{}, nil // the removal of the last finalizer has deleted the deployment
	}
	if err != nil {
		c.pace.Failed(w.Deployment, err)
		return runner.Result{}, err
	}
	logProgress(ctx, w.Deployment, written)
	c.traceEnd(ctx, w.Deployment, written, w.Owned)
	c.report(ctx, w.Deployment, verdict.Events)
	return again, nil
}

// anyUnhealthy reports whether a machine waits to recover. Where Nodes are configured, one reboots
// after the other.
func anyUnhealthy(machines map[types.UID][]*v1alpha1.Machine) bool {
	for _, all := range machines {
		if slices.ContainsFunc(all, machinefacts.IsUnhealthy) {
			return true
		}
	}
	return false
}

// change classifies how a deployment differs from its previous version. In a stream of changes
// counts are written at the slow pace; conditions, failed machines and the names of deleted
// machines are not.
func change(was, is *v1alpha1.MachineDeployment, isStream bool) patch.Change {
	before, after := was.Status, is.Status
	if was.Annotations[v1alpha1.AnnotationTriggerDeletion] != is.Annotations[v1alpha1.AnnotationTriggerDeletion] {
		return patch.Counted
	}
	if machinefacts.Same(before, after) {
		return patch.Unchanged
	}
	same := slices.EqualFunc(before.Conditions, after.Conditions, func(a, b v1alpha1.MachineDeploymentCondition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
	})
	if isStream && same && before.ObservedGeneration == after.ObservedGeneration &&
		machinefacts.Same(before.FailedMachines, after.FailedMachines) {
		return patch.Streaming
	}
	return patch.Counted
}

// observe returns the world of a deployment, from the caches.
func (c *Controller) observe(ctx context.Context, d *v1alpha1.MachineDeployment) (w rollout.World, err error) {
	_, span := telemetry.Step(ctx, telemetry.ObserveSpan)
	defer span.End()
	w = rollout.World{
		Now: c.cfg.Clock.Now(), Deployment: d, KeepFromAutoscaler: c.cfg.KeepFromAutoscaler,
		CountMinReady:     machinefacts.CountsMinReady(d, c.cfg.CountMinReady),
		NoComponentsTaint: machinefacts.OmitsComponentsTaint(d, c.cfg.NoComponentsTaint),
		Done:              rollout.Done{Moved: map[types.UID]bool{}, Deleted: map[types.UID]bool{}},
	}
	owned, undecodable := c.cfg.View.Sets.Children(d)
	for _, set := range owned {
		w.Owned = append(w.Owned, c.sets.Newest(set))
	}
	for _, f := range undecodable {
		w.Undecodable = append(w.Undecodable, &v1alpha1.MachineSet{ObjectMeta: f.ObjectMeta})
	}
	w.Machines = c.observeMachines(w.Owned)
	w.Confirmed = c.sees(d.UID, w.Owned)
	if d.Generation == d.Status.ObservedGeneration { // the writer of that status has listed orphans
		c.orphansListed.Store(d.UID, d.Spec.Selector)
	}
	w.MustListOrphans = c.mustListOrphans(d)
	w.Orphans = c.children.Orphans(d.Namespace)
	err = c.observeTarget(&w)
	return w, err
}

// observeMachines returns the machines of sets, from the caches, by the UID of their set.
func (c *Controller) observeMachines(sets []*v1alpha1.MachineSet) map[types.UID][]*v1alpha1.Machine {
	machines := map[types.UID][]*v1alpha1.Machine{}
	for _, set := range sets {
		decoded, undecodable := c.cfg.View.MachinesOf(set)
		for _, m := range decoded {
			put(machines, c.machines.Newest(m))
		}
		for _, m := range undecodable {
			put(machines, m) // it counts, and is not available
		}
	}
	return machines
}

// decide returns the verdict on a deployment. When none of the orphans that were listed is left to
// adopt, it records that: until then they are listed again, because no event reports a change of
// those in other slots.
func (c *Controller) decide(w *rollout.World) rollout.Verdict {
	verdict := rollout.Decide(*w)
	if verdict.Do == rollout.Rest {
		verdict.Waiting = rollout.Waits(w.Deployment, w.Owned, verdict)
	}
	if !w.MustListOrphans && w.Done.AdoptionRace == 0 && verdict.Do != rollout.Adopt {
		c.orphansListed.Store(w.Deployment.UID, w.Deployment.Spec.Selector)
	}
	return verdict
}

// mustListOrphans reports whether the deployment is new, or has another selector than when orphans
// were listed.
func (c *Controller) mustListOrphans(d *v1alpha1.MachineDeployment) bool {
	last, listed := c.orphansListed.Load(d.UID)
	return !listed || !machinefacts.Same(last, any(d.Spec.Selector))
}

// recordLive records which sets of a deployment the API server has, and which of them the cache
// shows.
func (c *Controller) recordLive(deployment types.UID, live map[types.UID]bool, shown []*v1alpha1.MachineSet) {
	unseen := maps.Clone(live)
	for _, set := range shown {
		if !live[set.UID] { // the cache is late
			c.unseen.Delete(deployment)
			return
		}
		delete(unseen, set.UID)
	}
	c.unseen.Store(deployment, unseen)
}

// recordCreated records a set that was created.
func (c *Controller) recordCreated(deployment, set types.UID) {
	if unseen := c.unseenOf(deployment); unseen != nil {
		unseen[set] = true
	}
}

// sees reports whether the API server was read for the deployment's sets, and the given ones, which
// the cache shows, are all that existed then and all that were created since.
func (c *Controller) sees(deployment types.UID, shown []*v1alpha1.MachineSet) bool {
	unseen := c.unseenOf(deployment)
	for _, set := range shown {
		delete(unseen, set.UID)
	}
	return unseen != nil && len(unseen) == 0
}

// unseenOf returns the sets that exist and that the cache has not shown yet; nil if that is not
// known. One worker at a time reconciles a deployment, and it may change the result.
func (c *Controller) unseenOf(deployment types.UID) map[types.UID]bool {
	found, _ := c.unseen.Load(deployment)
	unseen, _ := found.(map[types.UID]bool)
	return unseen
}
