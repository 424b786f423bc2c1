// Command demo shows a fleet at work: it starts a lab in a temporary folder, asks for machines, for more of them, and runs
// pods on them. Then it kills a replica that comes back, adds two, removes one and loses one, and shows who holds what and
// what changes hands, while every machine runs. It asks for fewer machines and for none, and proves that nothing is left
// and that the cloud was asked for nothing twice.
//
// What a user would type is run through kubectl and lab, and printed. On a terminal, what changes is drawn in place;
// elsewhere a line is printed when something has changed. NO_COLOR is honoured.
//
// Guarantees: every wait has a bound. Whatever the end, a signal among them, nothing is left running and no folder
// behind, except that --keep leaves both, and a failure leaves the folder with the logs. The exit code is 0 when
// everything was seen, 1 after a failure, 2 for wrong flags, and 130 after a signal.
//
// Not guaranteed: anything after a SIGKILL. The lab is then ended by `bin/lab down --dir`, with the folder that was
// printed first.
package main
