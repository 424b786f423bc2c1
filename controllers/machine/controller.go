package machine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/secretwatch"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/ready"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/rates"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/turns"
	"github.com/machine-controller-fleet/machine-controller-fleet/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/telemetry"
)

// Names of the two runners in metrics, logs and spans: of machines, and of what machines that are gone have left.
const (
	Name     = "machine"
	GoneName = "machine-gone"
)

// driverTimeout bounds one call of a driver. Clouds answer in seconds; one that does not is asked again later.
const driverTimeout = time.Minute

// maxActions bounds one pass. A machine's whole life has fewer actions; more would be a cycle in lifecycle.Decide.
const maxActions = 32

// Config is what the controller needs. All but Gate, GoneGate, Workers, NoComponentsTaint, Metrics and Tracer are required.
type Config struct {
	// Machines and Secrets write to the control cluster.
	Machines machineclient.MachineV1alpha1Interface
	Secrets  corev1client.SecretsGetter
	// Metadata reads who may use a Secret, and lists machines of all namespaces, past all caches; or of Namespace alone, if that is
	// the only one that is served.
	Metadata  metadata.Interface
	Namespace string
	// View shows the objects of the control cluster that are this process's to work on.
	View    *objectcache.View
	Targets target.Resolver
	Drivers *driver.Registry
	Events  events.EventRecorder
	Limits  lifecycle.Limits
	// IsUnlabeled says whether the target cluster has a Node of that name that is in no slot; nil means that there never is.
	// Whoever knows tells of such a Node by NodeAppeared.
	IsUnlabeled func(node string) bool
	// NoComponentsTaint has Nodes that were updated in place go without the taint critical-components-not-ready, where the root of
	// their machine does not say whether they do.
	NoComponentsTaint bool
	// BootstrapTokenGroups are the auth-extra-groups of bootstrap tokens; "" means none.
	BootstrapTokenGroups string
	// BootstrapTokenSigning lets bootstrap tokens sign, too, which a VM needs that discovers its cluster by its token.
	BootstrapTokenSigning bool
	Clock                 clock.WithTicker
	Gate                  runner.Gate[types.NamespacedName]
	// GoneGate admits machines that are gone; nil admits all.
	GoneGate runner.Gate[Gone]
	// Workers is how many machines of a namespace are worked on at the same time, and how many calls of a driver are in flight with
	// one set of credentials. In all namespaces together it is runner.TenantsAtOnce times as many.
	Workers int
	Metrics *runner.Metrics
	Tracer  trace.Tracer
}

// Controller reconciles Machines. Make one with New, before the View is fed.
type Controller struct {
	cfg      Config
	runner   *runner.Runner[types.NamespacedName]
	gone     *runner.Runner[Gone]
	machines *patch.Committer[*v1alpha1.Machine]
	classes  *patch.Committer[*v1alpha1.MachineClass]
	nodes    *patch.Latest[*corev1.Node]
	secrets  *secretReader
	awaited  *secretwatch.Watches

	drains *drains
	// troubles are those that API servers keep machines in, by UID of the machine.
	troubles         sync.Map
	calls            *calls // of drivers
	writes           *rates.Rates[types.UID]
	endings          sync.Map          // VMs that clouds are deleting, by UID of the machine
	proven           sync.Map          // provider IDs of VMs that clouds have shown to have the machine's UID, by that
	rivals           sync.Map          // what live lists have shown of other machines that name the Node, as nodeRivals, by UID of the machine
	claims           sync.Map          // Nodes that this process has claimed and the cache does not show yet, by name
	tokens           sync.Map          // bootstrap token Secrets that this process has made, by UID of the machine
	holding          turns.Mutex       // one at a time puts finalizers on classes and secrets
	disruptionChecks *disruptionChecks // on writes of Nodes
	refused          sync.Map          // what the API server has refused to have Nodes carry, by UID of the machine
}

// New makes the controller and has the View enqueue what concerns it.
func New(cfg Config) (*Controller, error) {
	c := &Controller{
		cfg:              cfg,
		machines:         patch.New(func(ns string) patch.Patcher[*v1alpha1.Machine] { return cfg.Machines.Machines(ns) }),
		classes:          patch.New(func(ns string) patch.Patcher[*v1alpha1.MachineClass] { return cfg.Machines.MachineClasses(ns) }),
		nodes:            patch.NewLatest[*corev1.Node](),
		disruptionChecks: newDisruptionChecks(),
		secrets:          newSecretReader(cfg.Secrets, cfg.Metadata, cfg.Namespace, cfg.Clock),
		drains:           newDrains(),
		calls:            newCalls(cfg.Workers),
		writes:           rates.New[types.UID](rates.MachineBurst, rates.MachineInterval),
	}
	c.awaited = secretwatch.New(secretwatch.Config{
		Client: cfg.Secrets, Clock: cfg.Clock, Changed: func(key types.NamespacedName) { c.secrets.forget(key) },
	})
	var err error
	c.runner, err = runner.New(runner.Config[types.NamespacedName]{
		Name: Name, Reconcile: c.reconcile, Panicked: c.panicked, Workers: runner.TenantsAtOnce * cfg.Workers, Gate: cfg.Gate,
		Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer,
	})
	if err != nil {
		return nil, err
	}
	c.gone, err = runner.New(runner.Config[Gone]{
		Name: GoneName, Reconcile: c.sweepTokens, Tenant: func(key Gone) string { return key.Namespace },
		Gate: cfg.GoneGate, Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer,
	})
	if err != nil {
		return nil, err
	}
	return c, c.watch()
}

// Run reconciles until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { c.drains.watches.Run(ctx) })
	watching.Go(func() { c.awaited.Run(ctx) })
	watching.Go(func() { c.gone.Run(ctx) })
	c.runner.Run(ctx)
}

// reconcile runs one pass over one machine.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (runner.Result, error) {
	cached, known := c.cfg.View.Machines.Get(key)
	if !known {
		return runner.Result{}, nil
	}
	telemetry.LinkTo(ctx, cached.Annotations[v1alpha1.AnnotationTraceparent])
	newest := c.machines.Newest(cached)
	if wait, err := c.aside(ctx, newest); wait > 0 || err != nil {
		return runner.Result{RequeueAfter: wait}, err
	}
	p, err := c.observe(newest)
	if err == nil && p.world.Class.Class == nil && p.world.Class.Undecodable == "" {
		err = c.complain(ctx, p, c.findClass(ctx, p))
	}
	if err != nil {
		return runner.Result{}, err
	}
	log := klog.FromContext(ctx)
	for range maxActions {
		verdict := lifecycle.Decide(p.world)
		log.V(4).Info("Decided", "action", verdict.Do, "phase", p.world.Machine.Status.CurrentStatus.Phase)
		p.world.Failure = nil
		if verdict.Do == lifecycle.Rest {
			return c.rest(ctx, p, verdict)
		}
		if wait := c.heldBack(p, verdict); wait > 0 {
			return runner.Result{RequeueAfter: wait}, nil
		}
		if verdict.Do != lifecycle.Save { // what has come of the step before is always written
			if err := runner.MayGoOn(ctx); err != nil {
				return runner.Result{}, err
			}
		}
		err := c.act(ctx, p, verdict)
		if errors.Is(err, errCrowded) {
			return runner.Result{RequeueAfter: crowdedPause}, nil
		}
		if err != nil {
			return runner.Result{}, c.complain(ctx, p, err)
		}
		p.world.Now = c.cfg.Clock.Now()
	}
	return runner.Result{}, fmt.Errorf("machine %s: %d actions in one pass and no end: a defect of the lifecycle", key, maxActions)
}

// rest ends a pass: the machine is written as the verdict has it, unless that is held back.
func (c *Controller) rest(ctx context.Context, p *pass, verdict lifecycle.Verdict) (runner.Result, error) {
	verdict = lifecycle.EndAside(p.world, verdict)
	if wait := c.heldBack(p, verdict); wait > 0 {
		return runner.Result{RequeueAfter: ready.Sooner(wait, verdict.Wake)}, nil
	}
	c.dropUnwanted(p)
	again := c.awaitSecrets(p, verdict)
	uid := p.world.Machine.UID
	if err := c.save(ctx, p, verdict); err != nil {
		return runner.Result{}, c.complain(ctx, p, err)
	}
	c.troubles.Delete(uid)
	return runner.Result{RequeueAfter: ready.Sooner(verdict.Wake, again)}, nil
}

// save writes the machine as the verdict has it, and tells the user.
func (c *Controller) save(ctx context.Context, p *pass, verdict lifecycle.Verdict) error {
	if verdict.Machine != nil {
		before := p.world.Machine
		written, err := c.machines.Commit(ctx, before, verdict.Machine)
		p.world.Machine = written
		if followsNode(before) && written.ResourceVersion != before.ResourceVersion {
			c.writes.Count(before.UID, c.cfg.Clock.Now())
		}
		if apierrors.IsNotFound(err) {
			return nil // it is gone, and with it all that was to be said of it
		}
		if err != nil {
			return err
		}
	}
	c.report(p.world.Machine, verdict.Event)
	return nil
}

func (c *Controller) report(m *v1alpha1.Machine, event *lifecycle.Event) {
	if event != nil {
		telemetry.Emit(c.cfg.Events, m, event.Reason, event.Message)
	}
}

// act carries one action out and notes in the world what came of it. Errors are those of API servers; a cloud's are
// facts, and go into the world.
func (c *Controller) act(ctx context.Context, p *pass, verdict lifecycle.Verdict) error {
	switch verdict.Do {
	case lifecycle.Rest:
		return nil
	case lifecycle.Save:
		return c.save(ctx, p, verdict)
	case lifecycle.ReadSecret:
		return c.readSecret(ctx, p)
	case lifecycle.AddFinalizers:
		return c.hold(ctx, p)
	case lifecycle.FindVM, lifecycle.CreateVM, lifecycle.InitializeVM, lifecycle.DeleteVM:
		return c.callDriver(ctx, p, verdict.Do)
	case lifecycle.MakeToken:
		return c.makeToken(ctx, p)
	case lifecycle.ProlongToken:
		return c.prolongToken(ctx, p)
	case lifecycle.DropToken:
		return c.unanswered(ctx, p, c.leaveToken(ctx, p, c.dropToken(ctx, p)))
	case lifecycle.FindNode:
		return c.unanswered(ctx, p, c.findNode(ctx, p))
	case lifecycle.FindNodeRivals:
		return c.findNodeRivals(ctx, p)
	case lifecycle.FindVMRivals:
		return c.findVMRivals(ctx, p)
	case lifecycle.MarkNode:
		return c.unanswered(ctx, p, c.markNode(ctx, p))
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
		return c.deleteNode(ctx, p)
	case lifecycle.DeleteMachine:
		return c.deleteMachine(ctx, p, verdict.Event)
	}
	return errors.New("lifecycle.Decide named an action that the controller does not know: " + string(verdict.Do))
}
