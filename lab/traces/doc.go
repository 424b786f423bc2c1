// Package traces reads the traces of a fleet back from Jaeger and shows the life of one machine as a tree: each replica that has owned
// it, the passes of the machine, and those of its MachineSet and MachineDeployment from which they follow, with their decisions,
// requests and calls of drivers.
//
// Jaeger's query API is the only source, so that the tree shows what was exported. The names of spans and attributes are those of
// docs/operations/tracing.md.
//
// Not guaranteed: completeness. Replicas send spans every 5 s, and Jaeger keeps a limited number of traces.
package traces
