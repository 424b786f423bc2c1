package machineset

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineset/scale"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption/recorded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// The status may be older than the machines by statusPace and, while they are replaced one by one
// or some wait to recover, by slowStatusPace.
const (
	statusPace     = 500 * time.Millisecond
	slowStatusPace = 10 * time.Second
)

// keepObserved is how long intents that are all observed may remain on a set whose machines are
// being replaced, to be removed together with the next ones.
const keepObserved = 10 * time.Second

// Config is the configuration of the controller. All fields but ClassProblem, TargetProblem,
// Written, CountMinReady, Gate, Workers, Gather, Metrics, Tracer and Rollout are required.
type Config struct {
	// Machines writes to the control cluster; Metadata lists there, uncached.
	Machines machineclient.MachineV1alpha1Interface
	Metadata metadata.Interface
	// View shows the objects of the control cluster that this replica may reconcile.
	View   *objectcache.View
	Events events.EventRecorder
	// Deletions records why machines are deleted.
	Deletions *deletion.Recorder
	Clock     clock.WithTicker
	Gate      runner.Gate[types.NamespacedName]
	// Workers is how many keys of one namespace are reconciled at the same time; of all namespaces,
	// runner.TenantsAtOnce times as many.
	Workers int
	// Held reports whether deletions of machines in a namespace are held. HoldChanged has to be called
	// when that changes.
	Held func(namespace string) (why string, held bool)
	// ClassProblem returns what keeps machines of a class from getting VMs; "" if nothing does. With
	// nil, no class is checked.
	ClassProblem func(ctx context.Context, class types.NamespacedName) (problem string, err error)
	// TargetProblem returns why the target cluster of a namespace is not available; "" if it is, or is
	// pending. TargetChanged has to be called when that changes. With nil it always is available.
	TargetProblem func(namespace string) (problem string, pending bool)
	// Written has the versions of sets that this process has written. With nil, it has only those of
	// this controller.
	Written *patch.Latest[*v1alpha1.MachineSet]
	// CountMinReady applies minReadySeconds to sets whose root does not specify whether it applies.
	CountMinReady bool
	// Gather is for how long changes of machines are gathered for one pass; 0 means not at all.
	Gather  time.Duration
	Metrics *runner.Metrics
	Tracer  trace.Tracer
	// Rollout returns the rollout that a deployment is in, for traces. Nil means that each pass of a
	// set is a trace.
	Rollout func(d *v1alpha1.MachineDeployment) telemetry.Stage
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error {
	return required.Fields(c, "Gate", "Workers", "ClassProblem", "TargetProblem", "Written", "Gather", "Metrics", "Tracer", "Rollout")
}

// Controller reconciles MachineSets. Create it with New, before the View has objects.
type Controller struct {
	cfg      Config
	own      clock.PassiveClock // of the process, for what does not outlive it
	runner   *runner.Runner[types.NamespacedName]
	pass     runner.Pass[*scale.World, scale.Verdict]
	sets     *patch.Committer[*v1alpha1.MachineSet]
	machines *patch.Committer[*v1alpha1.Machine]
	pace     *patch.Pace
	children *ownerref.Children[*v1alpha1.Machine]
	stale    prometheus.Counter

	mu   sync.Mutex
	done map[types.UID]*done

	metadata *decode.Metadata
	checks   *classChecks
}

// done records what this process has done for a set and the cache does not show yet. It only saves
// requests that would have no effect: names and preconditions already prevent the effect.
type done struct {
	busy        pacing.Mutex // locked during a decision about the set
	allObserved time.Time    // since when the intents on the set are all observed; zero when it has none, or one is not observed

	created map[int64]bool
	since   map[int64]time.Time // of created
	deleted map[types.UID]bool
	// released are the names of the machines that were released since the status was written last.
	released      []string
	class         classCheckOf
	orphansListed *metav1.LabelSelector // for which orphans were listed, and adopted

	live    *scale.Live                      // the last list
	listed  time.Time                        // when it began
	awaited map[types.UID]*metav1.ObjectMeta // machines of the list that the cache has not shown since
}

// New returns a Controller, and registers its event handlers at the View. Errors: those of
// cfg.Validate, and negative Workers.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Written == nil {
		cfg.Written = patch.NewLatest[*v1alpha1.MachineSet]()
	}
	c := &Controller{
		cfg:      cfg,
		own:      apianswers.Own(cfg.Clock),
		pace:     patch.NewPace(statusPace, slowStatusPace),
		stale:    newStale(),
		done:     map[types.UID]*done{},
		metadata: decode.NewMetadata(cfg.Metadata),
		checks:   newClassChecks(apianswers.Own(cfg.Clock), cfg.ClassProblem),
		sets:     patch.NewSharing(cfg.Written, func(ns string) patch.Patcher[*v1alpha1.MachineSet] { return cfg.Machines.MachineSets(ns) }),
		machines: patch.New(func(ns string) patch.Patcher[*v1alpha1.Machine] { return cfg.Machines.Machines(ns) }),
	}
	c.pass = runner.Pass[*scale.World, scale.Verdict]{
		Decide: c.decide,
		Act: func(ctx context.Context, w *scale.World, v scale.Verdict) (time.Duration, error) {
			return 0, c.act(ctx, w, v)
		},
		Rest: c.rest,
		Defers: func(v scale.Verdict) bool {
			return v.Do == scale.Create || v.Do == scale.Delete || v.Do == scale.Update
		},
	}
	var err error
	c.runner, err = runner.New(runner.Config[types.NamespacedName]{
		Name: runner.MachineSet, CreatesInNamespace: true, LogKey: telemetry.KeyMachineSet, Reconcile: c.reconcile,
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

// reconcile runs one pass over one set.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (runner.Result, error) {
	cached, known := c.cfg.View.Sets.Get(key)
	if !known {
		return runner.Result{}, nil
	}
	defer c.forgetIfGone(cached)
	defer c.lock(cached.UID)()
	newest := c.sets.Newest(cached)
	telemetry.About(ctx, newest)
	_, span := telemetry.Step(ctx, telemetry.ObserveSpan)
	w := c.observe(newest)
	span.End()
	return c.pass.Run(ctx, &w)
}

// root returns the UID of a set's root; "" while the view does not show the set.
func (c *Controller) root(key types.NamespacedName) types.UID {
	set, known := c.cfg.View.Sets.Get(key)
	if !known {
		return ""
	}
	return ownerref.RootUIDOfSet(set)
}

// stage returns the rollout of the set's deployment, in whose trace its passes are.
func (c *Controller) stage(key types.NamespacedName) telemetry.Stage {
	set, known := c.cfg.View.Sets.Get(key)
	if !known || c.cfg.Rollout == nil {
		return telemetry.Stage{}
	}
	owner := metav1.GetControllerOfNoCopy(set)
	if owner == nil {
		return telemetry.Stage{}
	}
	d, known := c.cfg.View.Deployments.Get(types.NamespacedName{Namespace: key.Namespace, Name: owner.Name})
	if !known || d.UID != owner.UID {
		return telemetry.Stage{}
	}
	return c.cfg.Rollout(d)
}

// rest writes the result of the pass, and returns when the set is reconciled again.
func (c *Controller) rest(ctx context.Context, w *scale.World, verdict scale.Verdict) (runner.Result, error) {
	wait, err := c.write(ctx, *w, verdict)
	wait = machinefacts.Sooner(wait, c.allObserved(w.Set.UID, verdict.AllObserved))
	wait = machinefacts.Sooner(wait, c.untilClassCheck(w.Set.UID))
	if len(w.Done.Created) > 0 || w.Live != nil && len(scale.Unseen(*w)) > 0 {
		wait = machinefacts.Sooner(wait, machinefacts.LateCache+time.Second) // in case the cache never shows them
	}
	if w.Done.AdoptionRace > 0 {
		wait = machinefacts.Sooner(wait, machinefacts.LateCache)
	}
	return runner.Result{RequeueAfter: wait}, err
}

// write writes the set, and its status when the pace allows it.
func (c *Controller) write(ctx context.Context, w scale.World, verdict scale.Verdict) (wait time.Duration, err error) {
	if verdict.Set == nil {
		return 0, nil
	}
	desired := verdict.Set
	if wait = c.pace.Wait(w.Set, change(w, desired.Status), c.cfg.Clock.Now()); wait > 0 {
		desired.Status = w.Set.Status
	}
	_, err = c.sets.Commit(ctx, w.Set, desired)
	if apierrors.IsNotFound(err) {
		return 0, nil // the removal of the last finalizer has deleted the set
	}
	if err != nil && wait == 0 {
		c.pace.Failed(w.Set, err)
	}
	if err == nil && wait == 0 {
		c.setReleased(w.Set.UID, nil)
		for _, event := range verdict.Events {
			telemetry.Emit(ctx, c.cfg.Events, w.Set, event.Reason, event.Message)
		}
	}
	return machinefacts.Sooner(wait, verdict.Wake), err
}

// change classifies how a status differs from the previous one. While machines are replaced, or
// some wait to recover, counts are written at the slow pace: Nodes that are configured reboot one
// after the other. Conditions and failed machines are not.
func change(w scale.World, after v1alpha1.MachineSetStatus) patch.Change {
	before := w.Set.Status
	isStream := isRolling(w.Set) || slices.ContainsFunc(w.Owned, machinefacts.IsUnhealthy)
	switch {
	case machinefacts.Same(before, after):
		return patch.Unchanged
	case isStream && machinefacts.Same(before.Conditions, after.Conditions) &&
		machinefacts.Same(before.FailedMachines, after.FailedMachines):
		return patch.Streaming
	}
	return patch.Counted
}

// isRolling reports whether the machines of the set's deployment are being replaced.
func isRolling(set *v1alpha1.MachineSet) bool {
	return set.Annotations[v1alpha1.AnnotationRolling] == v1alpha1.RollingTrue
}

// observe returns the world of a set, from the caches and from what this process has done.
func (c *Controller) observe(set *v1alpha1.MachineSet) scale.World {
	w := scale.World{Now: c.cfg.Clock.Now(), Set: set, Disruptions: recorded.Below(c.cfg.View,
		set), CountMinReady: c.countsMinReady(set), Undecodable: map[types.UID]bool{}, Done: scale.Done{
		Occupied: map[int64]bool{}, Refused: map[types.UID]bool{}, Adopted: map[types.UID]bool{}, Updated: map[types.UID]bool{},
	}}
	var undecodable []*v1alpha1.Machine
	w.Owned, undecodable = c.cfg.View.MachinesOf(set)
	w.Orphans = c.children.Orphans(set.Namespace)
	for i, m := range w.Owned {
		w.Owned[i] = c.machines.Newest(m)
	}
	w.Owned = slices.DeleteFunc(w.Owned, func(m *v1alpha1.Machine) bool { return !metav1.IsControlledBy(m, set) }) // released
	for _, m := range undecodable {
		w.Owned = append(w.Owned, m)
		w.Undecodable[m.UID] = true
	}
	known := c.doneFor(set, w.Owned)
	w.Done.Created, w.Done.Deleted, w.Done.Released = known.created, known.deleted, known.released
	w.HeldBy, w.Held = c.cfg.Held(set.Namespace)
	if c.cfg.TargetProblem != nil && metav1.GetControllerOfNoCopy(set) == nil {
		w.TargetProblem, w.TargetPending = c.cfg.TargetProblem(set.Namespace)
	}
	w.KeepObserved = isRolling(set) && (known.allObserved.IsZero() || w.Now.Sub(known.allObserved) < keepObserved)
	if set.Generation == set.Status.ObservedGeneration { // the writer of that status has listed orphans
		known.orphansListed = set.Spec.Selector
	}
	w.MustListOrphans = known.orphansListed == nil || !machinefacts.Same(known.orphansListed, set.Spec.Selector)
	c.observeClass(&w, known)
	return w
}

// decide returns the verdict on a set. When none of the orphans that were listed is left to adopt,
// it records that: until then they are listed again, because no event reports a change of those in
// other slots.
func (c *Controller) decide(w *scale.World) scale.Verdict {
	verdict := scale.Decide(*w)
	if verdict.Do == scale.Rest {
		verdict.Waiting = scale.Waits(*w, verdict)
	}
	if w.MustListOrphans || w.Done.AdoptionRace > 0 || verdict.Do == scale.Adopt {
		return verdict
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.done[w.Set.UID]; known != nil {
		known.orphansListed = w.Set.Spec.Selector
	}
	return verdict
}

// setReleased records which machines of a set were released, and that no status reports them yet.
func (c *Controller) setReleased(set types.UID, names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.done[set]; known != nil {
		known.released = names
	}
}

// listed records that the set's machines were listed.
func (c *Controller) listed(w *scale.World, begun time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.done[w.Set.UID]; known != nil {
		known.live, known.listed, known.awaited = w.Live, begun, scale.Unseen(*w)
	}
}

// doneFor returns what this process has done for the set, without what the cache shows by now. One
// worker at a time reconciles a set, and it records in the result what it does.
func (c *Controller) doneFor(set *v1alpha1.MachineSet, owned []*v1alpha1.Machine) *done {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.known(set.UID)
	now := c.own.Now()
	for ordinal := range known.created {
		if since, noted := known.since[ordinal]; !noted {
			known.since[ordinal] = now
		} else if now.Sub(since) > machinefacts.LateCache {
			delete(known.created, ordinal)
		}
	}
	standing := map[types.UID]bool{}
	for _, m := range owned {
		if len(known.created) > 0 {
			if ordinal, ok := machinefacts.OrdinalIn(set, m); ok {
				delete(known.created, ordinal)
			}
		}
		delete(known.awaited, m.UID)
		standing[m.UID] = m.DeletionTimestamp == nil
	}
	maps.DeleteFunc(known.since, func(ordinal int64, _ time.Time) bool { return !known.created[ordinal] })
	maps.DeleteFunc(known.deleted, func(uid types.UID, _ bool) bool { return !standing[uid] })
	return known
}

// act takes one action and records its result in the world.
func (c *Controller) act(ctx context.Context, w *scale.World, verdict scale.Verdict) error {
	switch verdict.Do {
	case scale.Rest:
		return nil
	case scale.Save:
		written, err := c.sets.Commit(ctx, w.Set, verdict.Set)
		if err != nil {
			return err
		}
		w.Set = written
		return nil
	case scale.ListLive:
		return c.listLive(ctx, w)
	case scale.CheckClass:
		return c.checkClass(ctx, w)
	case scale.Adopt:
		return c.adopt(ctx, w, verdict.Machines)
	case scale.Release:
		return c.release(ctx, w, verdict.Machines)
	case scale.Create:
		return c.create(ctx, w, verdict.Ordinals)
	case scale.Delete:
		return c.delete(ctx, w, verdict.Machines, verdict.Reasons)
	case scale.Update:
		return c.update(ctx, w, verdict.Machines)
	}
	return errors.New("scale.Decide named an action that the controller does not know: " + string(verdict.Do))
}
