package main

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/replica"
)

// declareHealth declares the flags of the health of machines, and of remediation.
func declareHealth(g *flags.Group, o *replica.HealthOptions) {
	g.Duration(&o.Timeout, "machine-health-timeout", o.Timeout,
		"how long a machine may be unhealthy before it has failed and is replaced; 0 means at once", flags.OrZero)
	g.List(&o.NodeConditions, "node-conditions", o.NodeConditions,
		"types of Node conditions, separated by commas, that must be False on a healthy Node")
	g.String(&o.DisruptionBudget, "disruption-budget", o.DisruptionBudget, "how many machines of a MachineDeployment may be on their way "+
		"out or in for an unhealthy one to be replaced: a number, or a percentage of its replicas, rounded down and at least 1")
	g.Int(&o.Thresholds.NotReady, "circuit-breaker-not-ready", o.Thresholds.NotReady,
		"how many machines of a zone, or of a whole target cluster, have to be not Ready, and be more than --circuit-breaker-percent of them, "+
			"to open the circuit breaker there: unhealthy machines are not replaced; the annotation "+v1alpha1.AnnotationCircuitBreaker+
			" on a MachineDeployment, or on its Namespace, goes before all of these flags")
	g.Int(&o.Thresholds.Percent, "circuit-breaker-percent", o.Thresholds.Percent,
		"see --circuit-breaker-not-ready; with 100 the circuit breaker never opens")
	g.Int(&o.Thresholds.ClosePercent, "circuit-breaker-close-percent", o.Thresholds.ClosePercent,
		"unhealthy machines are replaced again where less than this percentage has not been Ready for --circuit-breaker-close-after")
	g.Duration(&o.Thresholds.CloseAfter, "circuit-breaker-close-after", o.Thresholds.CloseAfter,
		"see --circuit-breaker-close-percent", flags.OrZero)
	g.Duration(&o.Thresholds.TryAfter, "circuit-breaker-try-after", o.Thresholds.TryAfter,
		"where the circuit breaker stays open, a machine that should have been replaced this long ago is replaced if no other one of its "+
			"MachineDeployment is; 0 means never", flags.OrZero)
}

func validateHealth(o *replica.HealthOptions) error {
	var errs []error
	limit := intstr.Parse(o.DisruptionBudget)
	if n, err := intstr.GetScaledValueFromIntOrPercent(&limit, 100, false); err != nil || n < 1 || limit.Type == intstr.String && n > 100 {
		errs = append(errs, fmt.Errorf("--disruption-budget: expected a number of at least 1, or 1%% to 100%%, got %q", o.DisruptionBudget))
	}
	if err := o.Thresholds.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--circuit-breaker-…: %w", err))
	}
	return errors.Join(errs...)
}
