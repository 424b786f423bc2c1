// Package scenario runs tests that are told as text: what is given, and what is decided on it.
//
// A file holds scenarios, and comments, which begin with #. A scenario is its name, a line for each fact, an arrow, and
// the verdict, to the next blank line. Facts above the first scenario are given in all of the file.
//
//	machine: made
//
//	scenario: the Node is ready
//	node: ready
//	token: absent
//	=>
//	Save
//	phase: Pending → Running
//
// What keys and values mean, and how a verdict is written, is up to the test that reads the file.
//
// Guarantees: rewriting a file changes nothing in it but verdicts. Not guaranteed: that a verdict is right. Whoever
// rewrites a file reads what has changed.
package scenario
