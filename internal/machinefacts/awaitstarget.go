package machinefacts

import (
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TargetRecheck is after which time a root has another pass whose target cluster is not available:
// not each return of a cluster is reported.
const TargetRecheck = time.Minute

// AwaitsTarget returns the condition Valid of a root whose machines wait for the target cluster of
// their namespace; not ok if they do not. before is the condition that the root has, problem why
// the cluster is not available. While it is pending nothing is known to be wrong: the condition
// stays as it is.
func AwaitsTarget(before Condition, problem string, pending bool) (is Condition, ok bool) {
	switch {
	case problem != "":
		return False(v1alpha1.ReasonTargetUnavailable, "Machines wait for the target cluster: "+problem), true
	case pending && before.Reason == v1alpha1.ReasonTargetUnavailable:
		return before, true
	}
	return Condition{}, false
}
