// Command demo shows a fleet: it starts a lab in a temporary folder, creates machines, scales them
// up, and runs pods on them. Then it kills a replica that is restarted, adds two, removes one and
// kills one for good, and shows which replica holds which slots and which slots move, while every
// machine runs. It scales down, deletes everything, and proves that nothing is left and that no
// call of the cloud had an effect twice.
//
// User commands are run through kubectl and lab, and printed. On a terminal, progress is drawn in
// place; elsewhere a line is printed for each change. NO_COLOR is honoured.
//
// Guarantees: every wait has a bound. At each end, also by a signal, no process and no folder is
// left, except that --keep leaves both, and a failure leaves the folder with the logs. The exit
// code is 0 when all steps succeeded, 1 after a failure, 2 for wrong flags, and 130 after a signal.
//
// Not guaranteed: anything after a SIGKILL. The lab is then ended by `bin/lab down --dir`, with the
// folder that was printed first.
package main
