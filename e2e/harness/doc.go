// Package harness starts labs, looks into them, and makes the objects that tests, benchmarks and the demo work with. It
// talks to a lab through what the lab promises to everybody: bin/lab, the files in the lab's folder, and HTTP.
//
// Guarantees: Up returns a lab that is ready, or an error and nothing running; Down stops what Up has started.
// Not guaranteed: that two users of one lab do not meet. Each test works in a namespace of its own.
package harness
