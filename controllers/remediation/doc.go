// Package remediation is the controller that allows unhealthy machines to be replaced, as package
// disruption decides.
//
// A pass observes one root with the machines below it, and writes the result of disruption.Decide
// to the root: disruptions to an annotation, and open circuit breakers to the status. The machine
// and MachineSet controllers act on the disruptions. Breakers counts the machines of this process,
// exchanges counts with other replicas, and determines which circuit breakers are open.
//
// Guarantees: a disruption is written with the resourceVersion of the root that it was decided for,
// before it has any effect; only metadata and status of a root are written. Not guaranteed: an
// Event for every open circuit breaker. Events are emitted after the status was written, by the
// replica that wrote it.
package remediation
