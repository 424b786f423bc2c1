// Package supervise starts, signals and reaps the processes of a lab.
//
// It acts on request only. A process that ends is not started again until a caller starts it,
// unless it ended by itself and its Spec has a restart policy: then it is restarted after a
// back-off, like a container under a kubelet, and never before the old process has been reaped.
// Stop, Kill and Crash return when the process has been reaped and Config.Changed was called.
// Actions on one process are serialized; those on several are concurrent.
//
// Processes outlive a supervisor that dies; the receiver of Config.Changed then has to end them.
//
// It identifies processes of the operating system by more than their number: a number is used again
// once its process has ended, a number together with the time of its start is not (until the
// machine boots again, which ID records too). The information comes from the system, so that it
// also covers processes that other programs have started.
//
// It never signals a process that it has not identified first, and never looks for processes by
// their name.
package supervise
