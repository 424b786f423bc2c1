// Package check reads what a fault run has left in the logs, and tells what should not be in them.
//
// It looks at the cloud's call log and at the API servers' audit logs, where every request of the fleet names the session,
// slot and epoch that it was made under, and at counts of machines taken while the faults went on.
//
// Guarantees: what it calls a fault is one, whatever was cut, paused or killed at the time. A late call that changed
// nothing is no fault; it is counted, because it shows that a run has hit what it aimed at. Whatever object it is about, a late
// write that went through is taken to have changed something, except what says of a Node what was said of it before, and
// what removes once more what was removed.
// That every key converges in the end is not read from logs: the fault runs wait until Converged agrees.
//
// Not guaranteed: that a run without findings was free of faults that leave no trace in these logs.
package check
