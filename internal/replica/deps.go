package replica

import (
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/scheme"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/namespaces"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/bynamespace"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// deps contains what the controllers of a replica are wired from. All of it exists before the first
// controller; nothing is set later.
type deps struct {
	clients

	o           Options
	session     *session
	metrics     *runner.Metrics
	tracer      trace.Tracer
	drivers     *driver.Registry
	cluster     *target.Cluster      // of all namespaces; nil when there is none
	byNamespace *bynamespace.Targets // of namespaces that have their own; nil otherwise
	targets     target.Resolver
	targetUsers *targetUsers // of byNamespace
	unserved    *unserved
	namespaces  *namespaces.Namespaces
	holds       *deletion.Holds
	budget      *deletion.Budget
	identity    *controlCluster
	broadcaster events.EventBroadcaster
	deletions   *deletion.Recorder
	view        *objectcache.View
	accounts    *cloudAccounts
	slots       *slots
	configs     *machineConfiguration // nil without machine configuration
	// written are the MachineSets that this process has written.
	written *patch.Latest[*v1alpha1.MachineSet]
}

// newDeps connects, and returns what does not run yet. Errors: invalid settings or configurations.
func newDeps(o Options, around Environment) (*deps, error) {
	registry, wall := around.Registry, apianswers.NewClock(around.Clock, controlName)
	d := &deps{
		o: o, metrics: runner.NewMetrics(registry), tracer: around.Tracer, unserved: &unserved{clock: wall},
		view: objectcache.NewView(), written: patch.NewLatest[*v1alpha1.MachineSet](),
	}
	if o.MCMWorkqueueMetrics {
		d.metrics.RepeatForMCM()
	}
	var err error
	if d.session, err = newSession(o, around, wall); err != nil {
		return nil, err
	}
	if d.clients, err = connect(around, d.session.fence, wall, o.checks()); err != nil {
		return nil, err
	}
	if d.drivers, err = d.fencedDrivers(around); err != nil {
		return nil, err
	}
	spread, err := o.Fleet.Spread()
	if err != nil {
		return nil, err
	}
	if err := d.findTargets(around, spread); err != nil {
		return nil, err
	}
	if d.namespaces, err = newNamespaces(d, spread); err != nil {
		return nil, err
	}
	d.holds = deletion.NewHolds(d.namespaces)
	d.budget = &deletion.Budget{
		Namespaces: d.namespaces, Leases: d.control.CoordinationV1(), Default: o.Safety.MaxDeletions, Clock: d.wall,
	}
	d.accounts = newCloudAccounts(d)
	d.identity = &controlCluster{namespaces: d.control.CoreV1().Namespaces(), clock: around.Clock}
	d.broadcaster = events.NewBroadcaster(telemetry.ByReplica(&events.EventSinkImpl{Interface: d.control.EventsV1()}, o.Name))
	log, err := deletion.OpenFile(o.Safety.DeletionLog)
	if err != nil {
		return nil, err
	}
	d.deletions = deletion.NewRecorder(d.wall, log, registry)
	if d.slots, err = newSlots(d, spread); err != nil {
		return nil, err
	}
	d.configs, err = newMachineConfiguration(d)
	return d, err
}

// recorder returns a recorder of Events of the control cluster.
func (d *deps) recorder(source string) events.EventRecorder {
	return telemetry.Damped(d.broadcaster.NewRecorder(scheme.Scheme, source), clock.RealClock{})
}

// rolloutOf returns the rollout that a deployment is in, of which passes are traced.
func (d *deps) rolloutOf(of *v1alpha1.MachineDeployment) telemetry.Stage {
	return machinedeployment.RolloutOf(d.view, of)
}
