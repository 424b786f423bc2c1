// Command bench measures the fleet against the floor in a lab, prints a table, writes it to
// bench.json in the lab's folder, and exits 1 when a bar is missed. docs/benchmarks.md explains the
// rows; bars.json has the bars.
//
// The floor is the time of a plain loop with the same cloud calls and API writes in the same lab,
// without any controller.
package main
