package machine

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/cloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/credentials"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apitime"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/deletionlog"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/rates"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/turns"
)

// Config is what the controller needs. All but Servers, DrainConfirm, FirstConfig, Called, Gate, GoneGate, Workers, NoComponentsTaint, Metrics and Tracer are required.
type Config struct {
	// Machines and Secrets write to the control cluster.
	Machines machineclient.MachineV1alpha1Interface
	Secrets  corev1client.SecretsGetter
	// Metadata reads which namespaces may use a Secret, and lists machines, both past all caches. Namespace is the only namespace
	// whose machines are listed; "" means all.
	Metadata  metadata.Interface
	Namespace string
	// View has the objects of the control cluster that this process reconciles.
	View    *objectcache.View
	Targets target.Resolver
	// Servers are what this process knows of API servers. DrainConfirm is how long requests for a drain have to fail before a drain
	// whose time is over is given up, so that an outage is detected before; 0 where no server is checked.
	Servers      target.Servers
	DrainConfirm time.Duration
	Drivers      *driver.Registry
	// ControlCluster returns the ID of the control cluster, or "" while it is not known; see driver.Target. nil means that it never is.
	ControlCluster func() string
	Events         events.EventRecorder
	// Deletions records why VMs, Nodes and Machines are deleted.
	Deletions *deletionlog.Recorder
	// Sets has the versions of MachineSets that this process has written. With nil, only the cached ones are used.
	Sets   *patch.Latest[*v1alpha1.MachineSet]
	Limits lifecycle.Limits
	// IsUnlabeled reports whether the target cluster has a Node of that name without a valid slot label, which Targets does not show;
	// nil means that it never has. The component that detects such a Node calls NodeAppeared.
	IsUnlabeled func(node string) bool
	// NoComponentsTaint reports whether Nodes that were updated in place do not get the taint critical-components-not-ready. The
	// annotation of a machine's root overrides it.
	NoComponentsTaint bool
	// BootstrapTokenGroups are the auth-extra-groups of bootstrap tokens; "" means none.
	BootstrapTokenGroups string
	// BootstrapTokenSigning reports whether bootstrap tokens may be used for signing, too. VMs need that if they discover their
	// cluster by the token.
	BootstrapTokenSigning bool
	// FirstConfig returns the values of the placeholders of machine configuration for a machine. problem is why there are none, as a sentence
	// for the machine's status; a change of which FirstConfigChanged must report. Nil where there is no machine configuration.
	FirstConfig func(ctx context.Context, m *v1alpha1.Machine) (values map[string]string, problem string, err error)
	// Called receives each call of a driver that has ended: its class, when it began by the clock of the process, and its error. It must return at once; it may be nil.
	Called func(class *v1alpha1.MachineClass, began time.Time, err error)
	Clock  clock.WithTickerAndDelayedExecution
	Gate   runner.Gate[types.NamespacedName]
	// GoneGate admits machines that are gone; nil admits all.
	GoneGate runner.Gate[credentials.Gone]
	// Workers is how many machines of a namespace are reconciled at the same time, and how many calls of a driver are in flight with
	// one set of credentials. Of all namespaces together, runner.TenantsAtOnce times as many machines are reconciled.
	Workers int
	Metrics *runner.Metrics
	Tracer  trace.Tracer
}

// Controller reconciles Machines. Create it with New before the View receives objects, because New registers the event handlers.
type Controller struct {
	cfg      Config
	own      clock.WithTickerAndDelayedExecution // of the process, for what does not outlive it
	runner   *runner.Runner[types.NamespacedName]
	pass     runner.Pass[*pass, lifecycle.Verdict]
	gone     *runner.Runner[credentials.Gone]
	machines *patch.Committer[*v1alpha1.Machine]
	classes  *patch.Committer[*v1alpha1.MachineClass]
	nodes    *patch.Latest[*corev1.Node]
	secrets  *credentials.Secrets
	tokens   *credentials.Tokens

	drains           *drainer.Drainer
	cloud            *cloud.Client
	writes           *rates.Rates[types.UID]
	evidence         *rates.Rates[string]           // on calls that ask for the VMs of unreachable Nodes, by namespace
	memory           *memory[types.UID, remembered] // of machines, by their UID
	claims           *memory[string, claim]         // of Nodes that this process has claimed and the cache does not show yet, by name
	namesakes        *namesakes                     // of machines, in other namespaces
	awaitConfig      *awaitConfig                   // machines without a configuration to boot with
	metrics          *lifeMetrics
	addingFinalizers turns.Mutex     // locked while finalizers are added to a class and its Secrets
	nodeWriteLimit   *nodeWriteLimit // on writes of Nodes
	unbound          unbound         // Nodes that are bound to no machine
}

// New returns the controller, and registers its indexes and event handlers. Errors: the configuration of a runner, an index, the
// target cluster.
func New(cfg Config) (*Controller, error) {
	own := apitime.Own(cfg.Clock)
	c := &Controller{
		cfg:            cfg,
		own:            own,
		machines:       patch.New(func(ns string) patch.Patcher[*v1alpha1.Machine] { return cfg.Machines.Machines(ns) }),
		classes:        patch.New(func(ns string) patch.Patcher[*v1alpha1.MachineClass] { return cfg.Machines.MachineClasses(ns) }),
		nodes:          patch.NewLatest[*corev1.Node](),
		nodeWriteLimit: newNodeWriteLimit(),
		memory:         newMemory[types.UID, remembered](),
		awaitConfig:    newAwaitConfig(),
		claims:         newMemory[string, claim](),
		namesakes:      newNamesakes(cfg.Metadata.Resource(v1alpha1.SchemeGroupVersion.WithResource("machines")).Namespace(cfg.Namespace), own),
		secrets: credentials.NewSecrets(credentials.SecretsConfig{
			Client: cfg.Secrets, Metadata: cfg.Metadata, Namespace: cfg.Namespace, Clock: own,
		}),
		tokens: credentials.NewTokens(credentials.TokensConfig{
			Machines: cfg.Machines, Targets: cfg.Targets, Clock: cfg.Clock, Groups: cfg.BootstrapTokenGroups, Signing: cfg.BootstrapTokenSigning,
		}),
		metrics: newLifeMetrics(cfg.Drivers.Providers(), newLastMachines(cfg.View)),
		writes:  rates.New[types.UID](rates.MachineBurst, rates.MachineInterval),

		evidence: rates.New[string](rates.EvidenceBurst, rates.EvidenceInterval),
	}
	c.drains = newDrainer(c)
	c.pass = runner.Pass[*pass, lifecycle.Verdict]{Decide: decide, Act: c.step, Rest: c.rest}
	var err error
	c.cloud, err = cloud.New(cloud.Config{
		View: cfg.View, Events: cfg.Events, Clock: own, Wake: func(key types.NamespacedName) { c.runner.Enqueue(key) },
		ControlCluster: cfg.ControlCluster, Called: cfg.Called, MostCalls: cfg.Workers,
	})
	if err != nil {
		return nil, err
	}
	c.runner, err = runner.New(runner.Config[types.NamespacedName]{
		Name: runner.Machine, LogKey: telemetry.KeyMachine, Reconcile: c.reconcile, Panicked: c.panicked, Workers: runner.TenantsAtOnce * cfg.Workers, Gate: cfg.Gate,
		Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer, Root: c.root, Stage: c.stage,
	})
	if err != nil {
		return nil, err
	}
	c.gone, err = runner.New(runner.Config[credentials.Gone]{
		Name: runner.MachineGone, Reconcile: c.tokens.Sweep, Tenant: func(key credentials.Gone) string { return key.Namespace },
		Gate: cfg.GoneGate, Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer,
	})
	if err != nil {
		return nil, err
	}
	return c, c.watch()
}

func newDrainer(c *Controller) *drainer.Drainer {
	return drainer.New(drainer.Config{
		Clock: c.cfg.Clock, Settings: c.cfg.Limits.Drain, Patience: patience, Confirm: c.cfg.DrainConfirm,
		Backoff: func(before time.Duration, code driver.Code, requested time.Duration) (step, wait time.Duration) {
			return lifecycle.NextWait(before, code, requested, c.cfg.Limits)
		},
	})
}

// Drains returns the drains of this process, which Run watches.
func (c *Controller) Drains() *drainer.Drainer { return c.drains }

// Run reconciles until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { c.drains.Run(ctx) })
	watching.Go(func() { c.secrets.Run(ctx) })
	watching.Go(func() { c.gone.Run(ctx) })
	c.runner.Run(ctx)
}

// reconcile runs one pass over one machine.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (runner.Result, error) {
	cached, known := c.cfg.View.Machines.Get(key)
	if !known {
		return runner.Result{}, nil
	}
	c.metrics.byNamespace.found(key.Namespace)
	newest := c.machines.Newest(cached)
	telemetry.About(ctx, newest)
	defer c.forgetIfGone(newest)
	if wait, err := c.reportSetAside(ctx, newest); wait > 0 || err != nil {
		return runner.Result{RequeueAfter: wait}, err
	}
	p, err := c.look(ctx, newest)
	if err != nil {
		return runner.Result{}, err
	}
	return c.pass.Run(ctx, p)
}

// root returns the UID of a machine's root; "" while the view does not show it.
func (c *Controller) root(key types.NamespacedName) types.UID {
	m, known := c.cfg.View.Machines.Get(key)
	if !known {
		return ""
	}
	return ownerref.RootUIDOf(c.cfg.View, m)
}

// stage returns the stage that a machine is in, whose trace its passes are in.
func (c *Controller) stage(key types.NamespacedName) telemetry.Stage {
	m, known := c.cfg.View.Machines.Get(key)
	if !known {
		return telemetry.Stage{}
	}
	m = c.machines.Newest(m)
	stage, since := lifecycle.StageOf(m)
	return tracedStage(m, stage, since)
}

// look returns a pass with what this process knows of the machine, and the class, which is read where the cache does not have it.
func (c *Controller) look(ctx context.Context, m *v1alpha1.Machine) (*pass, error) {
	ctx, span := telemetry.Step(ctx, telemetry.ObserveSpan)
	defer span.End()
	p, err := c.observe(m)
	if err == nil && p.world.Class.Class == nil && p.world.Class.Undecodable == "" {
		err = c.complain(ctx, p, c.findClass(ctx, p))
	}
	return p, err
}

// decide returns the verdict on a pass. It removes the failure of the last driver call from the world: a later decision of the pass
// must not count it again.
func decide(p *pass) lifecycle.Verdict {
	verdict := lifecycle.Decide(p.world)
	if verdict.Do == lifecycle.Rest {
		verdict.Waiting = lifecycle.Waits(p.world, verdict)
	}
	p.world.Failure = nil
	return verdict
}

// step carries out the action of a verdict. A wait greater than 0 means that it was not carried out: its write has to wait, or too
// many calls of the driver are in flight.
func (c *Controller) step(ctx context.Context, p *pass, verdict lifecycle.Verdict) (wait time.Duration, err error) {
	if wait := c.writeDelay(p, verdict); wait > 0 {
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
		return 0, c.complain(ctx, p, err)
	}
	c.observeOutages(p)
	return 0, nil
}

// rest ends a pass: it writes the machine of the verdict, unless that write has to wait.
func (c *Controller) rest(ctx context.Context, p *pass, verdict lifecycle.Verdict) (runner.Result, error) {
	verdict = lifecycle.EndSetAside(p.world, verdict)
	if wait := c.writeDelay(p, verdict); wait > 0 {
		return runner.Result{RequeueAfter: machinefacts.Sooner(wait, verdict.Wake)}, nil
	}
	if verdict.RequestSweep {
		if err := c.requestSweep(ctx, p); err != nil {
			return runner.Result{}, c.complain(ctx, p, err)
		}
	}
	c.dropUnwanted(p)
	again := machinefacts.Sooner(c.awaitSecrets(p, verdict), unshown(p))
	uid := p.world.Machine.UID
	if err := c.save(ctx, p, verdict); err != nil {
		return runner.Result{}, c.complain(ctx, p, err)
	}
	c.memory.change(uid, func(is *remembered) { is.lastingError = lastingError{} })
	return runner.Result{RequeueAfter: machinefacts.Sooner(verdict.Wake, again)}, nil
}

// unshown returns when to look again for a Node that the machine has joined as, and that the cache does not show: no event would report its
// end. A pending machine looks again anyway.
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

// save writes the machine of the verdict, and then emits the Events of the verdict: none is emitted for a state that was not written.
func (c *Controller) save(ctx context.Context, p *pass, verdict lifecycle.Verdict) error {
	before := p.world.Machine
	if verdict.Machine != nil {
		measured := c.memory.of(before.UID).timing // a machine that is gone after the write is forgotten at once
		written, err := c.machines.Commit(ctx, before, verdict.Machine)
		p.world.Machine = written
		if followsNode(before, p.world.Drain) && written.ResourceVersion != before.ResourceVersion {
			c.writes.Count(before.UID, c.cfg.Clock.Now())
		}
		if apierrors.IsNotFound(err) {
			return nil // the machine is gone: there is no object for the Events
		}
		if err != nil {
			return err
		}
		c.written(ctx, p, before, measured, verdict.Events)
	}
	c.report(ctx, before, p.world.Machine, verdict.Events...)
	return nil
}

// report emits Events on a machine, in the stage that it was in before a write or, if it was in none, in the one that the write begins.
func (c *Controller) report(ctx context.Context, before, m *v1alpha1.Machine, events ...lifecycle.Event) {
	stage, since := lifecycle.StageOf(before)
	if stage == "" {
		stage, since = lifecycle.StageOf(m)
	}
	ctx = telemetry.InStage(ctx, tracedStage(m, stage, since))
	for _, event := range events {
		telemetry.Emit(ctx, c.cfg.Events, m, event.Reason, event.Message)
	}
}

// act carries out one action and records its result in the world. Errors of a cloud are part of that result. Errors: those of API
// servers and of callDriver.
func (c *Controller) act(ctx context.Context, p *pass, verdict lifecycle.Verdict) error {
	switch verdict.Do {
	case lifecycle.Rest:
		return nil
	case lifecycle.Save:
		return c.save(ctx, p, verdict)
	case lifecycle.ReadSecret:
		return c.readSecrets(ctx, p)
	case lifecycle.ReadConfig:
		return c.readConfig(ctx, p)
	case lifecycle.AddFinalizers:
		return c.addFinalizers(ctx, p)
	case lifecycle.CheckFields:
		return c.checkFields(ctx, p)
	case lifecycle.FindVM, lifecycle.CreateVM, lifecycle.InitializeVM, lifecycle.DeleteVM:
		return c.callDriver(ctx, p, verdict)
	case lifecycle.AskCloud:
		return c.askCloud(ctx, p)
	case lifecycle.MakeToken:
		return c.makeToken(ctx, p)
	case lifecycle.ProlongToken:
		return c.prolongToken(ctx, p)
	case lifecycle.DropToken:
		return c.unanswered(ctx, p, c.dropToken(ctx, p))
	case lifecycle.FindNode:
		return c.unanswered(ctx, p, c.findNode(ctx, p))
	case lifecycle.FindNodeRivals:
		return c.findNodeRivals(ctx, p)
	case lifecycle.FindVMRivals:
		return c.findVMRivals(ctx, p)
	case lifecycle.SetTerminating:
		return c.unanswered(ctx, p, c.setTerminating(ctx, p))
	case lifecycle.DrainNode:
		return c.unanswered(ctx, p, c.drainNode(ctx, p))
	case lifecycle.ClaimNode:
		return c.claimNode(ctx, p, verdict.Patch)
	case lifecycle.PatchNode:
		return c.writeNode(ctx, p, verdict.Patch)
	case lifecycle.DrainPreserved:
		return c.drainPreserved(ctx, p)
	case lifecycle.DrainForUpdate:
		return c.drainForUpdate(ctx, p)
	case lifecycle.DeleteNode:
		return c.deleteNode(ctx, p, verdict.Why)
	case lifecycle.DeleteMachine:
		return c.deleteMachine(ctx, p, verdict)
	}
	return errors.New("lifecycle.Decide named an action that the controller does not know: " + string(verdict.Do))
}
