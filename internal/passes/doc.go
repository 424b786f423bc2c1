// Package passes lets whoever has admitted a pass end it early: a slot that is to go to another replica waits for what is
// in flight, and a pass of many steps need not take all of them.
//
// Guarantees: none beyond what is asked; a pass that does not ask goes on to its end.
package passes
