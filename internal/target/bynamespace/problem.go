package bynamespace

import (
	"context"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// problem is why a target is not available.
type problem string

// The problems.
const (
	none      problem = ""
	opening   problem = "opening"  // nothing is known to be wrong
	ofSecret  problem = "secret"   // missing or invalid
	ofServer  problem = "server"   // does not answer, or fails
	ofCluster problem = "identity" // another one than before, or it cannot be recorded
	ofNodes   problem = "nodes"    // too many
)

// otherClusterError means that a cluster is not the one that the namespace had first.
type otherClusterError struct{ error }

// Unwrap returns why.
func (e *otherClusterError) Unwrap() error { return e.error }

// changed reports a change of the target, and logs it if it is another problem than before.
func (o *one) changed() {
	_, is, why, _ := o.state()
	o.mu.Lock()
	now := o.cfg.Clock.Now()
	isNews := is != o.logged && is != opening && o.lines.Wait(o.namespace, now) == 0
	if isNews {
		o.lines.Count(o.namespace, now)
		o.logged = is
	}
	log := o.log
	o.mu.Unlock()
	switch {
	case isNews && is == none:
		log.Info("Target cluster is available again", telemetry.KeyNamespace, o.namespace)
	case isNews:
		log.Error(nil, "Target cluster is not available; its machines wait", telemetry.KeyNamespace, o.namespace, "reason", string(is), "message",
			why)
	}
	for _, f := range o.onChange {
		f(o.namespace)
	}
}

// quiet returns a context for watches, which log each list that fails: of a server that is away one
// every 5 s.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }

// Collect returns the metrics of targets; nil are those of a process without any.
func Collect(t *Targets) []prometheus.Collector {
	gauge := func(name, help string, labels prometheus.Labels, of func(is problem, link *live) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() (sum float64) {
			for _, o := range t.open() {
				link, is, _, _ := o.state()
				sum += of(is, link)
			}
			return sum
		})
	}
	all := []prometheus.Collector{
		gauge("mcf_open_targets", "Namespaces whose own target cluster this replica is connected to, or tries to be.",
			nil, func(problem, *live) float64 { return 1 }),
		gauge("mcf_target_nodes", "Nodes of target clusters of namespaces that are in memory.", nil, func(_ problem, link *live) float64 {
			if link == nil {
				return 0
			}
			return float64(link.Cluster.Nodes.Len())
		}),
	}
	for _, reason := range []problem{opening, ofSecret, ofServer, ofCluster, ofNodes} {
		all = append(all,
			gauge("mcf_unavailable_targets", "Namespaces whose own target cluster is open and cannot be used, so that their machines wait.",
				prometheus.Labels{"reason": string(reason)}, func(is problem, _ *live) float64 {
					if is == reason {
						return 1
					}
					return 0
				}))
	}
	return all
}

// open returns the open targets.
func (t *Targets) open() []*one {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.all))
}
