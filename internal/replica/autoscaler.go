package replica

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/kubeletconfig/fold"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespaceswitch/policy"
)

// newAutoscalers returns the server for cluster-autoscalers, with its metrics registered; nil if
// they are not served. It is no controller: it works in no slot, and answers for every namespace of
// the fleet.
func newAutoscalers(d *deps, registerer prometheus.Registerer) (*autoscaler.Server, error) {
	if !d.o.ServeAutoscalers {
		return nil, nil //nolint:nilnil // it is switched off
	}
	metrics := autoscaler.NewMetrics()
	registerer.MustRegister(metrics.Collectors()...)
	return autoscaler.New(autoscaler.Config{
		Machines: d.machines, Reviews: d.control.AuthorizationV1(), ForUser: fence.ForUser,
		Serves: d.unservedNamespace, Off: d.switchedOff, Held: d.holds.Held, MaxPods: d.maxPods,
		Wall: d.wall, Clock: d.wall.WithTickerAndDelayedExecution, Metrics: metrics,
	})
}

// unservedNamespace returns why the fleet does not serve a namespace by its settings, "" if it
// does.
func (d *deps) unservedNamespace(namespace string) string {
	switch {
	case d.o.Namespace != "" && d.o.Namespace != namespace:
		return fmt.Sprintf("it serves namespace %s only (--namespace)", d.o.Namespace)
	case !d.isSelected(namespace):
		return fmt.Sprintf("--namespace-selector %q does not select it", d.o.NamespaceSelector)
	}
	return ""
}

// switchedOff returns why the fleet does nothing in a namespace that it serves, "" if it does.
func (d *deps) switchedOff(namespace string) string {
	if d.slots.switches.IsOn(namespace) {
		return ""
	}
	return fmt.Sprintf("the Deployment %s/%s, which switches the fleet on there, has no replicas, or is not known yet",
		namespace, policy.Deployment)
}

// maxPods returns how many pods the KubeletConfigs of the pool of a MachineDeployment allow on a
// Node. It is only ok in a fleet with one target cluster for all namespaces, whose pools every
// replica watches: all replicas have to answer alike.
func (d *deps) maxPods(namespace, deployment string) (n int64, ok bool) {
	if d.configs == nil || d.cluster == nil {
		return 0, false
	}
	cache := d.configs.of("").cache
	for _, pool := range cache.Pools() {
		if ref := pool.Spec.MachineRef; ref != nil && ref.Namespace == namespace && ref.Name == deployment {
			return fold.MaxPods(pool, cache.KubeletConfigs())
		}
	}
	return 0, false
}
