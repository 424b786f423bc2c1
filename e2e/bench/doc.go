// Command bench measures the fleet against the floor in a lab, prints a table, writes it to bench.json in the lab's
// folder, and exits 1 when a bar is missed. docs/benchmarks.md explains the rows; bars.json holds the bars.
//
// The floor is what a plain loop of the same cloud calls and API writes takes in the same lab, without any controller.
package main
