// Command demo shows a fleet at work: it starts a lab in a temporary folder, asks for machines, for more of them, runs
// pods on them, asks for fewer and for none, shows what becomes of each wish, and proves that nothing is left.
//
// What a user would type is run through kubectl and printed. On a terminal, what changes is drawn in place; elsewhere a
// line is printed when something has changed. NO_COLOR is honoured.
//
// Guarantees: every wait has a bound. Whatever the end, a signal among them, nothing is left running and no folder
// behind, except that --keep leaves both, and a failure leaves the folder with the logs. The exit code is 0 when
// everything was seen, 1 after a failure, 2 for wrong flags, and 130 after a signal.
//
// Not guaranteed: anything after a SIGKILL. The lab is then ended by `bin/lab down --dir`, with the folder that was
// printed first.
package main
