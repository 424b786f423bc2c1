package replica

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/template"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/update"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespacelease"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespaceswitch"
)

// machineConfiguration is machine configuration in this process: that of the target cluster of all
// namespaces, or of those of namespaces which are open.
type machineConfiguration struct {
	deps      *deps
	templates *template.Shared
	counters  *update.Counters
	shared    *runner.Shared // nil where one target cluster is that of all namespaces

	// Of the controller of machines, which exists before the first cluster.
	machines interface{ FirstConfigChanged(namespace string) }
	drains   *drainer.Drainer

	mu  sync.Mutex
	all map[string]*clusterConfiguration // that exist now, by the names of their clusters
}

const (
	// poolWorkers is how many pools are worked on at the same time. Rendering is a matter of the
	// processor.
	poolWorkers = 4
	// poolWorkersOfNamespace is how many pools of one namespace are, where each has its own target
	// cluster: a client that can write pools there can have any number of them rendered all the time.
	poolWorkersOfNamespace = 2
)

// newMachineConfiguration returns nil where there is no machine configuration: it is not enabled,
// or there is no target cluster.
func newMachineConfiguration(d *deps) (*machineConfiguration, error) {
	if !d.o.Configs.Enabled || d.cluster == nil && d.byNamespace == nil {
		return nil, nil
	}
	m := &machineConfiguration{
		deps: d, templates: template.NewShared(d.o.Configs.source(d.control)), counters: update.NewCounters(),
		all: map[string]*clusterConfiguration{},
	}
	if d.byNamespace == nil {
		return m, nil
	}
	var err error
	m.shared, err = runner.NewShared(runner.SharedConfig{
		Names: map[runner.Name]string{
			runner.MachineConfigRender: telemetry.KeyPool, runner.MachineConfigUpdate: telemetry.KeyPool,
			runner.MachineConfigJoin: telemetry.KeyPool, runner.KubeletConfig: telemetry.KeyPool,
			runner.KubeletConfigStatus: telemetry.KeyKubeletConfig, runner.MachineConfigTemplate: telemetry.KeyControllerConfig,
		},
		Workers: d.o.ConcurrentSyncs, WorkersPerTenant: poolWorkersOfNamespace,
		Around: func(inner runner.Grouper[types.NamespacedName]) runner.Gate[types.NamespacedName] {
			return namespaceswitch.Guard(d.slots.switches, namespacelease.Counted(d.slots.namespaces, inNamespace, inner), inNamespace)
		},
		Clock: d.wall, Metrics: d.metrics, Tracer: d.tracer,
	})
	return m, err
}

// collectors return the metrics of the pools of all clusters. Those of a namespace's cluster have
// its namespace.
func (m *machineConfiguration) collectors(acts func() bool) []prometheus.Collector {
	pools := func() (all []*fleetv1alpha1.MachineConfigPool) {
		for _, of := range m.open() {
			for _, pool := range of.cache.Owned() {
				shown := *pool
				shown.Namespace = of.cluster.Name
				all = append(all, &shown)
			}
		}
		return all
	}
	rendered := func(pool *fleetv1alpha1.MachineConfigPool) int {
		if of := m.of(pool.Namespace); of != nil {
			return len(of.cache.Rendered(pool.Name))
		}
		return 0
	}
	return append(render.Collectors(acts, pools, rendered), m.counters.Collectors(acts, pools)...)
}

// of returns the configuration of a target cluster by its name; nil if it is not open.
func (m *machineConfiguration) of(name string) *clusterConfiguration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[name]
}

// open returns the configurations of all target clusters.
func (m *machineConfiguration) open() (all []*clusterConfiguration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, of := range m.all {
		all = append(all, of)
	}
	return all
}

// look has all configurations look again for what this replica owns.
func (m *machineConfiguration) look() {
	for _, of := range m.open() {
		of.cache.Look()
	}
}

// lookAt is look for one namespace.
func (m *machineConfiguration) lookAt(namespace string) {
	for _, of := range m.concerned(namespace) {
		of.cache.Look()
	}
}

// concerned returns the configurations that what happens in a namespace concerns; "" is all
// namespaces.
func (m *machineConfiguration) concerned(namespace string) []*clusterConfiguration {
	if namespace == "" || m.shared == nil {
		return m.open()
	}
	if of := m.of(namespace); of != nil {
		return []*clusterConfiguration{of}
	}
	return nil
}

// holdChanged gives pools a pass: deletions may be held now in a namespace, or not any more.
func (m *machineConfiguration) holdChanged(namespace string) {
	for _, of := range m.concerned(namespace) {
		of.updates.HoldChanged(namespace)
	}
}

// serverChanged gives pools a pass when an API server that they depend on is away, and when it is
// back; nil means that of the control cluster.
func (m *machineConfiguration) serverChanged(server *target.Cluster) {
	if m == nil {
		return
	}
	for _, of := range m.open() {
		if server == nil || server == of.cluster {
			of.updates.ServerChanged()
		}
	}
}

// firstConfig returns the source of the configurations that new machines boot with; nil where there
// is no machine configuration.
func (m *machineConfiguration) firstConfig() func(context.Context, *v1alpha1.Machine) (map[string]string, string, error) {
	if m == nil {
		return nil
	}
	return func(ctx context.Context, machine *v1alpha1.Machine) (map[string]string, string, error) {
		if m.shared == nil {
			return m.of("").first.Values(ctx, machine)
		}
		of := m.of(machine.Namespace)
		if of == nil {
			return nil, "", &target.UnavailableError{
				Namespace: machine.Namespace, Pending: true, Reason: "its machine configuration is not opened yet", After: time.Second,
			}
		}
		if problem := of.problem(); problem != nil && !of.cache.Ready() {
			return nil, fmt.Sprintf("the machine configuration of its target cluster cannot be read: %v", problem), nil
		}
		if !of.cache.Ready() {
			return nil, "", &target.UnavailableError{
				Namespace: machine.Namespace, Pending: true, Reason: "its machine configuration is not listed yet", After: time.Second,
			}
		}
		return of.first.Values(ctx, machine)
	}
}

// Run follows the templates, and works for the target clusters of namespaces, until ctx ends.
func (m *machineConfiguration) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { m.templates.Follow(ctx) })
	if m.shared != nil {
		running.Go(func() { m.shared.Run(ctx) })
	}
}

// source returns the templates.
func (o *ConfigOptions) source(control kubeclient.Interface) template.Source {
	if folder, ok := o.Folder(); ok {
		return template.Folder(folder)
	}
	if namespace, name, ok := strings.Cut(o.Templates, "/"); ok {
		return template.NewConfigMap(control.CoreV1(), types.NamespacedName{Namespace: namespace, Name: name})
	}
	return template.None{}
}

// addMachineConfiguration adds machine configuration, if there is any.
func (c *controllers) addMachineConfiguration(d *deps) error {
	m := d.configs
	if m == nil {
		return nil
	}
	m.machines, m.drains = c.machines, c.machines.Drains()
	c.add(m, m.collectors(d.session.fence.Acts)...)
	if d.cluster == nil {
		return nil
	}
	of, err := m.newCluster(d.cluster, clusterClients{core: d.target, metadata: d.targetMetadata, configs: d.targetConfigs})
	if err != nil {
		return err
	}
	c.add(of)
	return nil
}

// linkMachineConfiguration connects machine configuration with what it depends on.
func linkMachineConfiguration(d *deps) {
	m := d.configs
	d.slots.opened = append(d.slots.opened, m.look)
	d.slots.dropped = append(d.slots.dropped, m.look)
	d.slots.namespaces.OnChange(m.lookAt)
	d.holds.OnChange(m.holdChanged)
	if d.byNamespace != nil {
		d.byNamespace.OnChange(m.lookAt)
	}
}
