package remediation

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// Config is the configuration of the controller. All fields but Servers, Budget, the Gates,
// Workers, Metrics and Tracer are required.
type Config struct {
	// Machines writes to the control cluster.
	Machines machineclient.MachineV1alpha1Interface
	// View has the objects of the control cluster in this process's slots.
	View    *objectcache.View
	Targets target.Resolver
	// Servers contain the states of API servers that this process knows.
	Servers target.Servers
	// Namespaces has the annotations of the control cluster's Namespaces. It has to begin to watch
	// after New.
	Namespaces Namespaces
	// DeploymentEvents and SetEvents record Events of MachineDeployments and MachineSets.
	DeploymentEvents, SetEvents events.EventRecorder
	Limits                      disruption.Limits
	// Held reports whether deletions of machines in a namespace are held, and why. HoldChanged has to
	// be called when that changes.
	Held func(namespace string) (why string, held bool)
	// Budget has the deletion budgets of namespaces; with nil nothing is limited.
	Budget *deletion.Budget
	// Replica is the name under which this process reports its counts.
	Replica string
	// SlotOf returns the slot in an object's labels. Holds reports whether the slot is held and its
	// objects are all in the View.
	SlotOf func(labels map[string]string) (slot int, ok bool)
	Holds  func(slot int) bool
	// Gates for the keys of both kinds.
	DeploymentGate, SetGate runner.Gate[types.NamespacedName]
	Clock                   clock.WithTicker
	Workers                 int
	// Gather is for how long changes of machines are gathered for one pass; 0 means not at all.
	Gather  time.Duration
	Metrics *runner.Metrics
	Tracer  trace.Tracer
}

// Validate returns an error that names the required fields that are not set, and the errors of the
// thresholds.
func (c Config) Validate() error {
	return errors.Join(
		required.Fields(c, "Servers", "Limits", "Budget", "DeploymentGate", "SetGate", "Workers", "Gather", "Metrics", "Tracer"),
		c.Limits.Thresholds.Validate())
}

// Controller records disruptions. New returns one; call it before the View is filled.
type Controller struct {
	cfg         Config
	tree        *tree
	thresholds  thresholds
	breakers    *Breakers
	deployments *roots[*v1alpha1.MachineDeployment]
	sets        *roots[*v1alpha1.MachineSet]
}

// New returns the controller and registers its handlers with the View. Errors: those of
// cfg.Validate, negative Workers, and no target cluster that can be found.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Controller{cfg: cfg, tree: &tree{view: cfg.View, targets: cfg.Targets}}
	c.thresholds = thresholds{flags: cfg.Limits.Thresholds, namespaces: cfg.Namespaces}
	c.breakers = newBreakers(cfg, c.tree)
	var err1, err2 error
	c.deployments, err1 = deploymentRoots(c)
	c.sets, err2 = setRoots(c)
	c.breakers.changed = func(namespace string) {
		c.deployments.enqueueIn(namespace)
		c.sets.enqueueIn(namespace)
	}
	c.breakers.inUse = func() map[string][]disruption.Thresholds {
		return c.thresholds.inUse(slices.Concat(c.deployments.in(""), c.sets.in("")))
	}
	cfg.Namespaces.OnChange(c.breakers.changed)
	c.watch()
	return c, errors.Join(err1, err2)
}

// ServerChanged enqueues the roots of a target cluster, all with nil, because their API server is
// away, or is back.
func (c *Controller) ServerChanged(of *target.Cluster) {
	for _, root := range slices.Concat(c.deployments.in(""), c.sets.in("")) {
		cluster, _ := c.cfg.Targets.For(root.GetNamespace()) // nil with an error
		if of == nil || cluster == of {
			c.enqueueRootOf(root, true)
		}
	}
}

// TargetChanged enqueues the roots of a namespace whose target cluster is available, or not any
// more: then none of its machines counts as Ready.
func (c *Controller) TargetChanged(namespace string) {
	c.breakers.recount()
	c.deployments.enqueueIn(namespace)
	c.sets.enqueueIn(namespace)
}

// Breakers returns the circuit breakers of this process.
func (c *Controller) Breakers() *Breakers { return c.breakers }

// Run reconciles until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.breakers.run(ctx) })
	running.Go(func() { c.deployments.runner.Run(ctx) })
	running.Go(func() { c.sets.runner.Run(ctx) })
	running.Wait()
}
