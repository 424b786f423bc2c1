// Package check reads the logs of a run with faults, and reports violations in them.
//
// It reads the cloud's call log and the API servers' audit logs, where every request of the fleet
// names the session, slot and epoch that it was sent under, and counts of machines during the
// faults.
//
// Guarantees: what it reports as a fault is one, regardless of what was cut, paused or killed at
// the time. A late call that changed nothing is no fault; it is counted, because it shows that a
// run has had the intended effect. A late successful write counts as a change, except a write of a
// Node with values that were written before, and a repeated removal. That every key converges in
// the end is not read from logs: the fault runs wait until Converged returns nil.
//
// Not guaranteed: that a run without findings was free of faults that leave no trace in these logs.
package check
