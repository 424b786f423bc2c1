package machine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/cloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/credentials"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// Controller reconciles Machines. Create it with New before the View receives objects, because New
// registers the event handlers.
type Controller struct {
	cfg      Config
	runner   *runner.Runner[types.NamespacedName]
	pass     runner.Pass[*pass, lifecycle.Verdict]
	memory   *machineMemory
	metrics  *lifeMetrics
	cloud    *cloud.Client
	outages  *outages
	parents  *parents
	observer *observer
	machines *writer
	classes  *classes
	vms      *vms
	nodes    *nodes
	drains   *drains
	tokens   *tokens
	others   *claimants
	configs  *firstConfigs
}

// New returns the controller, and registers its indexes and event handlers. Errors: those of
// Config.Validate, the configuration of a runner, an index, the target cluster.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Controller{cfg: cfg, memory: newMachineMemory()}
	c.pass = runner.Pass[*pass, lifecycle.Verdict]{Decide: decide, Act: c.step, Rest: c.rest}
	own := apianswers.Own(cfg.Clock) // of the process, for what does not outlive it
	wake := func(key types.NamespacedName) { c.runner.Enqueue(key) }
	if err := c.addClasses(own, wake); err != nil {
		return nil, err
	}
	c.addMachines(own)
	if err := c.addNodes(own, wake); err != nil {
		return nil, err
	}
	c.vms = &vms{
		cloud: c.cloud, clock: cfg.Clock, own: own, memory: c.memory, nodes: c.nodes, classes: c.classes, parents: c.parents,
		drains: c.drains.Drainer, events: cfg.Events, deletions: cfg.Deletions,
		asked: pacing.NewRates[string](pacing.EvidenceBurst, pacing.EvidenceInterval),
	}
	c.configs = &firstConfigs{values: cfg.FirstConfig, wake: wake, awaiting: map[types.NamespacedName]bool{}}
	if err := c.addTokens(); err != nil {
		return nil, err
	}
	c.observer = &observer{
		targets: cfg.Targets, limits: cfg.Limits, memory: c.memory, outages: c.outages, classes: c.classes, vms: c.vms, nodes: c.nodes,
		parents: c.parents,
		drains:  c.drains.Drainer, tokens: c.tokens.store,
	}
	var err error
	c.runner, err = runner.New(runner.Config[types.NamespacedName]{
		Name: runner.Machine, LogKey: telemetry.KeyMachine, Reconcile: c.reconcile, Panicked: c.machines.setAside,
		Workers: runner.TenantsAtOnce * cfg.Workers, Gate: cfg.Gate, Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer,
		Root: c.parents.root, Stage: c.machines.stage,
	})
	if err != nil {
		return nil, err
	}
	return c, c.watch()
}

func (c *Controller) addClasses(own clock.WithTickerAndDelayedExecution, wake func(types.NamespacedName)) (err error) {
	cfg := c.cfg
	c.cloud, err = cloud.New(cloud.Config{
		View:           cfg.View,
		Events:         cfg.Events,
		Clock:          own,
		Wake:           wake,
		ControlCluster: cfg.ControlCluster,
		Called:         cfg.Called,
		MostCalls:      cfg.Workers,
	})
	if err != nil {
		return err
	}
	secrets, err := credentials.NewSecrets(credentials.SecretsConfig{
		Client: cfg.Secrets, Metadata: cfg.Metadata, Namespace: cfg.Namespace, Clock: own,
	})
	c.classes = &classes{
		machines: cfg.Machines, namespace: cfg.Namespace, view: cfg.View,
		latest:  patch.New(func(ns string) patch.Patcher[*v1alpha1.MachineClass] { return cfg.Machines.MachineClasses(ns) }),
		secrets: secrets,
		drivers: cfg.Drivers, cloud: c.cloud, events: cfg.Events, clock: cfg.Clock, limits: cfg.Limits, wake: wake,
	}
	return err
}

func (c *Controller) addMachines(own clock.PassiveClock) {
	cfg := c.cfg
	c.metrics = newLifeMetrics(cfg, c.memory)
	c.outages = &outages{clock: cfg.Clock, servers: cfg.Servers}
	c.parents = &parents{view: cfg.View, sets: cfg.Sets, noComponentsTaint: cfg.NoComponentsTaint}
	c.machines = &writer{
		client: cfg.Machines, view: cfg.View, events: cfg.Events, deletions: cfg.Deletions, clock: cfg.Clock, own: own, limits: cfg.Limits,
		latest: patch.New(func(ns string) patch.Patcher[*v1alpha1.Machine] { return cfg.Machines.Machines(ns) }),
		writes: pacing.NewRates[types.UID](pacing.MachineBurst, pacing.MachineInterval),
		memory: c.memory, metrics: c.metrics, parents: c.parents, outages: c.outages,
	}
	all := cfg.Metadata.Resource(v1alpha1.SchemeGroupVersion.WithResource("machines")).Namespace(cfg.Namespace)
	c.others = &claimants{machines: cfg.Machines, namesakes: newNamesakes(all, own), memory: c.memory, own: own}
}

func (c *Controller) addNodes(own clock.PassiveClock, wake func(types.NamespacedName)) (err error) {
	c.nodes = newNodes(c.cfg, own, c.memory)
	if c.drains, err = newDrains(c.cfg, c.memory, c.nodes, wake); err != nil {
		return err
	}
	c.drains.warn = func(ctx context.Context, m *v1alpha1.Machine, message string) {
		c.machines.report(ctx, m, m, lifecycle.Event{Reason: v1alpha1.EventEvictionTimedOut, Message: message})
	}
	return nil
}

func (c *Controller) addTokens() (err error) {
	cfg := c.cfg
	store, err := credentials.NewTokens(credentials.TokensConfig{
		Machines: cfg.Machines, Targets: cfg.Targets, Clock: cfg.Clock, Groups: cfg.BootstrapTokenGroups, Signing: cfg.BootstrapTokenSigning,
	})
	if err != nil {
		return err
	}
	c.tokens = &tokens{clock: cfg.Clock, limits: cfg.Limits, store: store}
	c.tokens.gone, err = runner.New(runner.Config[credentials.Gone]{
		Name: runner.MachineGone, Reconcile: c.tokens.store.Sweep, Tenant: func(key credentials.Gone) string { return key.Namespace },
		Gate: cfg.GoneGate, Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer,
	})
	return err
}

// Drains returns the drains of this process, which Run watches.
func (c *Controller) Drains() *drainer.Drainer { return c.drains.Drainer }

// Run reconciles until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { c.drains.Run(ctx) })
	watching.Go(func() { c.classes.secrets.Run(ctx) })
	watching.Go(func() { c.tokens.gone.Run(ctx) })
	c.runner.Run(ctx)
}

// reconcile runs one pass over one machine.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (runner.Result, error) {
	cached, known := c.cfg.View.Machines.Get(key)
	if !known {
		return runner.Result{}, nil
	}
	c.metrics.byNamespace.found(key.Namespace)
	newest := c.machines.latest.Newest(cached)
	telemetry.About(ctx, newest)
	defer c.forgetIfGone(newest)
	if wait, err := c.machines.reportSetAside(ctx, newest); wait > 0 || err != nil {
		return runner.Result{RequeueAfter: wait}, err
	}
	p, err := c.look(ctx, newest)
	if err != nil {
		return runner.Result{}, err
	}
	return c.pass.Run(ctx, p)
}

// look returns a pass with what this process knows of the machine, and the class, which is read
// where the cache does not have it.
func (c *Controller) look(ctx context.Context, m *v1alpha1.Machine) (*pass, error) {
	ctx, span := telemetry.Step(ctx, telemetry.ObserveSpan)
	defer span.End()
	p, err := c.observer.observe(m)
	if err == nil && p.world.Class.Class == nil && p.world.Class.Undecodable == "" {
		err = c.machines.reportError(ctx, p, c.classes.find(ctx, p))
	}
	return p, err
}

// decide returns the verdict on a pass. It removes the failure of the last driver call from the
// world: a later decision of the pass must not count it again.
func decide(p *pass) lifecycle.Verdict {
	verdict := lifecycle.Decide(p.world)
	if verdict.Do == lifecycle.Rest {
		verdict.Waiting = lifecycle.Waits(p.world, verdict)
	}
	p.world.Failure = nil
	return verdict
}

// step carries out the action of a verdict. A wait greater than 0 means that it was not carried
// out: its write has to wait, or too many calls of the driver are in flight.
func (c *Controller) step(ctx context.Context, p *pass, verdict lifecycle.Verdict) (wait time.Duration, err error) {
	if wait := c.machines.delay(p, verdict); wait > 0 {
		return wait, nil
	}
	if verdict.Do != lifecycle.Save { // the result of the step before is always written: otherwise it would be lost
		if err := runner.MayGoOn(ctx); err != nil {
			return 0, err
		}
	}
	err = c.act(ctx, p, verdict)
	if errors.Is(err, cloud.ErrCrowded) {
		return cloud.CrowdedPause, nil
	}
	if err != nil {
		return 0, c.machines.reportError(ctx, p, err)
	}
	c.outages.observe(p)
	return 0, nil
}

// rest ends a pass: it writes the machine of the verdict, unless that write has to wait.
func (c *Controller) rest(ctx context.Context, p *pass, verdict lifecycle.Verdict) (runner.Result, error) {
	verdict = lifecycle.EndSetAside(p.world, verdict)
	if wait := c.machines.delay(p, verdict); wait > 0 {
		return runner.Result{RequeueAfter: machinefacts.Sooner(wait, verdict.Wake)}, nil
	}
	if verdict.RequestSweep {
		if err := c.classes.requestSweep(ctx, p); err != nil {
			return runner.Result{}, c.machines.reportError(ctx, p, err)
		}
	}
	c.drains.dropUnwanted(p)
	again := machinefacts.Sooner(p.again, machinefacts.Sooner(c.classes.awaitSecrets(p, verdict), unshown(p)))
	before := p.world.Machine
	if err := c.machines.save(ctx, p, verdict); err != nil {
		return runner.Result{}, c.machines.reportError(ctx, p, err)
	}
	c.memory.change(before.UID, func(is *remembered) { is.lastingError = lastingError{} })
	return runner.Result{RequeueAfter: machinefacts.Sooner(afterWrite(p, before, verdict), again)}, nil
}

// afterWrite returns when to look again at a machine whose verdict was written. The event of that
// write requests no pass, so it decides on what was written; if that is more than to wait, the next
// pass begins at once.
func afterWrite(p *pass, before *v1alpha1.Machine, verdict lifecycle.Verdict) time.Duration {
	m := p.world.Machine
	if m.ResourceVersion == before.ResourceVersion || len(m.Finalizers) == 0 {
		return verdict.Wake
	}
	next := lifecycle.EndSetAside(p.world, lifecycle.Decide(p.world))
	if next.Do != lifecycle.Rest || next.Machine != nil && !machinefacts.Same(m, next.Machine) {
		return time.Nanosecond
	}
	return next.Wake
}

// unshown returns when to look again for a Node that the machine has joined as, and that the cache
// does not show: no event would report its end. A pending machine looks again anyway.
func unshown(p *pass) time.Duration {
	m, node := p.world.Machine, p.world.Node
	if m.Status.CurrentStatus.Phase == v1alpha1.MachinePending || node.State != lifecycle.NodePresent || p.cluster.Nodes.Shows(node.Node) {
		return 0
	}
	if ref, bound := v1alpha1.MachineOf(node.Node); !bound || ref != v1alpha1.RefOf(m) {
		return 0
	}
	return machinefacts.LateCache
}

// act carries out one action and records its result in the world. Errors of a cloud are part of
// that result. Errors: those of API servers and of vms.call.
func (c *Controller) act(ctx context.Context, p *pass, verdict lifecycle.Verdict) error {
	switch verdict.Do {
	case lifecycle.Rest:
		return nil
	case lifecycle.Save:
		return c.machines.save(ctx, p, verdict)
	case lifecycle.ReadSecret:
		return c.classes.readSecrets(ctx, p)
	case lifecycle.ReadConfig:
		return c.configs.read(ctx, p)
	case lifecycle.AddFinalizers:
		return c.classes.addFinalizers(ctx, p)
	case lifecycle.CheckFields:
		return c.classes.checkFields(ctx, p)
	case lifecycle.FindVM, lifecycle.CreateVM, lifecycle.InitializeVM, lifecycle.DeleteVM:
		return c.vms.call(ctx, p, verdict)
	case lifecycle.AskCloud:
		return c.vms.ask(ctx, p)
	case lifecycle.CreateToken:
		return c.tokens.create(ctx, p)
	case lifecycle.ProlongToken:
		return c.tokens.prolong(ctx, p)
	case lifecycle.DropToken:
		return c.drains.unanswered(ctx, p, c.tokens.drop(ctx, p))
	case lifecycle.FindNode:
		return c.drains.unanswered(ctx, p, c.nodes.find(ctx, p))
	case lifecycle.FindNodeClaims:
		return c.others.findOfNode(ctx, p)
	case lifecycle.FindVMClaims:
		return c.others.findOfVM(ctx, p)
	case lifecycle.SetTerminating:
		return c.drains.unanswered(ctx, p, c.drains.setTerminating(ctx, p))
	case lifecycle.DrainNode:
		return c.drains.unanswered(ctx, p, c.drains.forDeletion(ctx, p))
	case lifecycle.ClaimNode:
		return c.nodes.claim(ctx, p, verdict.Patch)
	case lifecycle.PatchNode:
		return c.nodes.write(ctx, p, verdict.Patch)
	case lifecycle.DrainPreserved:
		return c.drains.forPreservation(ctx, p)
	case lifecycle.DrainForUpdate:
		return c.drains.forUpdate(ctx, p)
	case lifecycle.DeleteNode:
		return c.nodes.delete(ctx, p, verdict.Why)
	case lifecycle.DeleteMachine:
		return c.machines.delete(ctx, p, verdict)
	}
	return errors.New("lifecycle.Decide named an action that the controller does not know: " + string(verdict.Do))
}

// forget drops all that this process remembers of a machine that is gone. No other function does.
func (c *Controller) forget(m *v1alpha1.Machine) {
	c.memory.forget(m.UID)
	if cluster, err := c.cfg.Targets.For(m.Namespace); err == nil && cluster != nil {
		c.nodes.claims.forget(cluster.Key(lifecycle.NodeName(m)))
	}
	c.machines.latest.Forget(m.UID)
	c.drains.Forget(m.UID)
	c.classes.secrets.StopAwaiting(m.UID)
	c.tokens.store.Forget(m.UID)
	c.cloud.Forget(objectcache.Key(m))
	c.machines.writes.Forget(m.UID)
}

// forgetIfGone forgets a machine at the end of its pass if the cache does not show it any more: the
// pass may have remembered something after the event that the machine is gone, and no later event
// would drop it.
func (c *Controller) forgetIfGone(m *v1alpha1.Machine) {
	if !c.cfg.View.Machines.Shows(m) {
		c.forget(m)
	}
}

// ClassProblem returns what would keep the first machine of a MachineClass from getting a VM, as
// far as that is known without a request to the cloud; "" if nothing would. It reports fields that
// the driver ignores on the class, as the first machine would. Errors: those of the API server, all
// of the driver but that the class is wrong, the end of ctx or of the ownership; nothing is known
// of the class then.
func (c *Controller) ClassProblem(ctx context.Context, key types.NamespacedName) (problem string, err error) {
	return c.classes.problem(ctx, key)
}

// TryAccount looks for the VM of a Machine that does not exist, with a MachineClass as the API
// server has it now. answer is the error of the driver, NotFound if the account works. err is why
// no call was sent: the class or its Secrets are missing, invalid, or could not be read.
func (c *Controller) TryAccount(ctx context.Context, key types.NamespacedName) (answer, err error) {
	return c.classes.try(ctx, key)
}

// FirstConfigChanged enqueues the machines of a namespace, "" for all, that have no configuration
// to boot with: a MachineConfigPool has changed.
func (c *Controller) FirstConfigChanged(namespace string) { c.configs.changed(namespace) }

// Collectors return the metrics of Machines. Those of the machines that exist are calculated at
// each scrape from the machines in this replica's slots, so that one that was deleted, or moved to
// another replica, has none. While acts returns false this replica may have lost its slots without
// a notice, and reports none of them. byMachine has the names of the metrics that have a series for
// each machine and are emitted all the same.
func (c *Controller) Collectors(acts func() bool, byMachine []string) []prometheus.Collector {
	return append(c.cloud.Collectors(c.metrics.providers), c.metrics.collectors(acts, byMachine)...)
}
