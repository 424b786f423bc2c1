// Package cloud sends the calls of drivers for machines.
//
// Guarantees: with one set of credentials, only a bounded number of calls is in flight, also if
// namespaces share it; each call ends after Timeout; while calls for an account fail for machine
// after machine, its circuit breaker has one machine try for all (package breaker). Not guaranteed:
// that a call which has ended without an answer had no effect. The controller finds out with the
// next one.
package cloud
