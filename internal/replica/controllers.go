package replica

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineclass"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineset"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/node"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/overshoot"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/remediation"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/unmanaged"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// controllers are those of a replica. Each field is set once, by the function that adds it; those
// that are switched off are nil.
type controllers struct {
	remediation *remediation.Controller
	machines    *machine.Controller
	sets        *machineset.Controller
	deployments *machinedeployment.Controller
	classes     *machineclass.Controller
	classCache  *slotcache.Classes
	orphans     *orphans.Controller
	overshoot   *overshoot.Controller
	unmanaged   *unmanaged.Controller

	running    []controller           // all that runs
	collectors []prometheus.Collector // of the objects in this replica's slots
}

// newControllers returns the controllers that the options switch on. Errors: an invalid
// configuration.
func newControllers(d *deps) (*controllers, error) {
	c := &controllers{running: []controller{d.identity, d.namespaces}}
	if d.byNamespace != nil {
		c.add(d.byNamespace)
	}
	// A controller comes after those whose functions it calls.
	for _, add := range []func(d *deps) error{
		c.addRemediation, c.addMachines, c.addSets, c.addDeployments, c.addClasses, c.addNodes,
		c.addOrphans, c.addOvershoot, c.addUnmanaged, c.addMachineConfiguration,
	} {
		if err := add(d); err != nil {
			return nil, err
		}
	}
	c.running = append(c.running, newAccountTries(d.accounts, d.tryIfOn(c.machines.TryAccount)))
	c.collectors = append(c.collectors, newLoadGauges(d.session.fence.Acts, d.measure, assignment.CapacityOf(d.o.ConcurrentSyncs)))
	return c, nil
}

// add adds what runs, and its metrics.
func (c *controllers) add(runs controller, collectors ...prometheus.Collector) {
	c.running = append(c.running, runs)
	c.collectors = append(c.collectors, collectors...)
}

func (c *controllers) addMachines(d *deps) (err error) {
	o := d.o
	c.machines, err = machine.New(machine.Config{
		Machines: d.machines, Secrets: d.control.CoreV1(), Metadata: d.metadata, Namespace: o.Namespace, View: d.view,
		Targets: d.targets,
		Servers: d.outages(), DrainConfirm: o.checks().drainConfirm(),
		Drivers: d.drivers, ControlCluster: d.identity.ID, Events: d.recorder(v1alpha1.EventSourceMachine),
		Deletions: d.deletions, Sets: d.written, Limits: o.Limits(), IsUnlabeled: d.slots.unlabeledNode,
		BootstrapTokenGroups: strings.Join(o.Machine.BootstrapTokenGroups, ","), BootstrapTokenSigning: o.Machine.BootstrapTokenSigning,
		NoComponentsTaint: !o.Machine.ComponentsTaint, FirstConfig: d.configs.firstConfig(), Called: d.accounts.called,
		Gate: d.slots.gate(policy.Machine), GoneGate: d.slots.goneGate(),
		Clock: d.wall, Workers: o.ConcurrentSyncs, Metrics: d.metrics, Tracer: d.tracer,
	})
	if err != nil {
		return err
	}
	c.add(c.machines, c.machines.Collectors(d.session.fence.Acts, o.MetricsByMachine)...)
	return nil
}

func (c *controllers) addSets(d *deps) (err error) {
	c.sets, err = machineset.New(machineset.Config{
		Machines: d.machines, Metadata: d.metadata, View: d.view, Events: d.recorder(v1alpha1.EventSourceMachineSet),
		Deletions: d.deletions,
		Gate:      d.slots.gate(policy.Set),
		Clock:     d.wall, Workers: d.o.ConcurrentSyncs, Gather: pacing.RootInterval, Metrics: d.metrics, Tracer: d.tracer,
		CountMinReady: d.o.Machine.CountMinReady,
		Written:       d.written, Held: d.holds.Held, Rollout: d.rolloutOf, ClassProblem: c.machines.ClassProblem,
		TargetProblem: func(namespace string) (string, bool) { return target.Problem(d.targets, namespace) },
	})
	if err != nil {
		return err
	}
	c.add(c.sets, c.sets.Collectors(d.session.fence.Acts, d.o.MetricsByMachine)...)
	return nil
}

func (c *controllers) addDeployments(d *deps) (err error) {
	c.deployments, err = machinedeployment.New(machinedeployment.Config{
		Machines: d.machines, Metadata: d.metadata, View: d.view, Targets: d.targets,
		Events: d.recorder(v1alpha1.EventSourceMachineDeployment),
		Gate:   d.slots.gate(policy.Deployment),
		Clock:  d.wall, Workers: d.o.ConcurrentSyncs, Gather: pacing.RootInterval, KeepFromAutoscaler: d.o.Machine.ScaleDownAnnotation,
		CountMinReady:     d.o.Machine.CountMinReady,
		NoComponentsTaint: !d.o.Machine.ComponentsTaint,
		Predict:           c.sets.Predict, Written: d.written,
		Metrics: d.metrics, Tracer: d.tracer,
	})
	if err != nil {
		return err
	}
	c.add(c.deployments, c.deployments.Collectors(d.session.fence.Acts, d.o.MetricsByMachine)...)
	return nil
}

// addClasses adds the controller of MachineClasses and the cache of their references.
func (c *controllers) addClasses(d *deps) (err error) {
	c.classes, err = machineclass.New(machineclass.Config{
		Machines: d.machines, Secrets: d.control.CoreV1(), Metadata: d.metadata, View: d.view, Namespace: d.o.Namespace,
		Namespaces: d.secretNamespaces(), Gate: d.slots.sharedGate(), Clock: d.wall, Workers: d.o.ConcurrentSyncs, Metrics: d.metrics,
		Tracer: d.tracer,
	})
	if err != nil {
		return err
	}
	c.classCache, err = slotcache.NewClasses(slotcache.ClassesConfig{
		Machines: d.machines, Metadata: d.metadata, View: d.view, Namespace: d.o.Namespace,
		Enqueue: c.classes.Enqueue, Clock: clock.RealClock{},
	})
	if err != nil {
		return err
	}
	c.add(c.classes)
	c.add(c.classCache)
	return nil
}

// addNodes adds the controller of deleted Nodes, if there is a target cluster.
func (c *controllers) addNodes(d *deps) error {
	if d.cluster == nil && d.byNamespace == nil {
		return nil
	}
	nodes, err := node.New(node.Config{
		Metadata: d.metadata, View: d.view, Targets: d.targets, Namespace: d.o.Namespace,
		// one for each target cluster
		Gate: d.slots.nodeGate(), Clock: d.wall, Workers: runner.TenantsAtOnce, Metrics: d.metrics, Tracer: d.tracer,
	})
	if err != nil {
		return err
	}
	c.add(nodes)
	return nil
}
