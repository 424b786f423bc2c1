// Package scenario runs tests that are written as text: facts, and the verdict on them.
//
// A file holds scenarios, and comments, which begin with #. A scenario is its name, a line for each
// fact, an arrow, and the verdict, to the next blank line. Facts above the first scenario are given
// in all of the file.
//
//	machine: created
//
//	scenario: the Node is ready
//	node: ready
//	token: absent
//	=>
//	Save
//	phase: Pending → Running
//
// What keys and values mean, and how a verdict is written, is defined by the test that reads the
// file.
//
// Guarantees: rewriting a file changes only its verdicts. Not guaranteed: that a verdict is right.
// The author has to review the changes of a rewritten file.
package scenario
