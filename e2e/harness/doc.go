// Package harness starts labs, observes them, and creates the objects of tests, benchmarks and the
// demo. It uses only the public interface of a lab: bin/lab, the files in the lab's folder, and
// HTTP.
//
// Guarantees: Up returns a lab that is ready, or an error and nothing running; Down stops what Up
// has started. Not guaranteed: that two users of one lab do not meet. Each test works in
// its own namespace.
package harness
