package remediation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// awayMessage is the message of the condition. It has no time, so that replicas that take over do
// not write it again.
const awayMessage = "The API server of the target cluster, or that of the control cluster, does not answer. Until it does, " +
	"no machine is created, fails, is replaced or deleted; " +
	"machines with the label " + v1alpha1.LabelForceDeletion + "=true are deleted without a drain"

// conditionType is the type of a condition. Both kinds of roots have the same.
type conditionType = v1alpha1.MachineDeploymentConditionType

// condition is the content of a condition of a root.
type condition = machinefacts.Condition

// event is the content of an Event.
type event struct{ reason, text string }

// announce emits an Event when a condition of a root becomes True or has another reason, and one
// when it is not True any more. before is the root without the change.
func (r *roots[T]) announce(ctx context.Context, before T, of conditionType, is condition, begin, end event) {
	switch was := r.conditionOf(before, of); {
	case is.IsTrue() && is.Reason != was.Reason:
		telemetry.Emit(ctx, r.events, before, begin.reason, begin.text)
	case was.IsTrue() && !is.IsTrue():
		telemetry.Emit(ctx, r.events, before, end.reason, end.text)
	}
}

// awayOf returns the condition of a root whose API server is away, or is not.
func awayOf(away bool) condition {
	if !away {
		return condition{}
	}
	return machinefacts.True(v1alpha1.ReasonNoAnswer, awayMessage)
}

// breakerOf returns the condition of a root with open circuit breakers, by its thresholds. ignored
// is why an annotation with others is ignored; "" if none is.
func breakerOf(open []disruption.Scope, t disruption.Thresholds, ignored string) condition {
	switch {
	case len(open) == 0 && ignored == "":
		return condition{}
	case len(open) == 0:
		return machinefacts.False(v1alpha1.ReasonThresholdsIgnored, ignored)
	}
	is := machinefacts.True(reasonOf(open), message(open, t))
	if ignored != "" {
		is.Message += ". " + ignored
	}
	return is
}

// reasonOf returns the reason for the open circuit breakers of a root.
func reasonOf(open []disruption.Scope) string {
	if slices.ContainsFunc(open, func(s disruption.Scope) bool { return s.Zone == "" }) {
		return v1alpha1.ReasonTargetNotReady
	}
	return v1alpha1.ReasonZoneNotReady
}

// message returns the message of the condition, with the scopes and when they close. It has no
// numbers of machines, which change often.
func message(open []disruption.Scope, t disruption.Thresholds) string {
	names, isLocal := make([]string, len(open)), true
	for i, scope := range open {
		names[i], isLocal = counted(scope).String(), isLocal && scope.Namespace != ""
	}
	in, counts := "", ""
	if isLocal {
		in, counts = " in namespace "+open[0].Namespace, ", counted in all namespaces"
	}
	text := fmt.Sprintf("Unhealthy machines in %s are not replaced%s: at least %d machines, and more than %d %% of them, "+
		"were not Ready there%s. They are replaced again when less than %d %% have not been Ready for %s",
		strings.Join(names, ", "), in, t.NotReady, t.Percent, counts, t.ClosePercent, t.CloseAfter)
	if t.TryAfter > 0 {
		text += fmt.Sprintf("; until then, one after the other, those that have waited for %s", t.TryAfter)
	}
	return text
}

// counted returns the scope of the counts of a circuit breaker: those of all namespaces, also where
// it is open in one of them.
func counted(scope disruption.Scope) disruption.Scope {
	scope.Namespace = ""
	return scope
}

// numbers returns the part of an Event with the numbers of machines that are not Ready.
func numbers(open []disruption.Scope, standing disruption.Snapshot) string {
	parts := make([]string, len(open))
	for i, scope := range open {
		n := standing.Open[scope]
		parts[i] = fmt.Sprintf("%d of %d machines in %s are not Ready", n.NotReady, n.Ready+n.NotReady, counted(scope))
	}
	return strings.Join(parts, ", ")
}
