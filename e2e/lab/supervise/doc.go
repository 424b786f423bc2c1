// Package supervise starts, signals and reaps the processes of a lab.
//
// It acts on request only. A process that ends is not started again until a caller starts it, unless it ended by itself and
// its Spec has a restart policy: then it is restarted after a back-off, like a container under a kubelet, and never before
// the old process has been reaped. Stop, Kill and Crash return when the process has been reaped and Config.Changed was
// called. Actions on one process are serialized; those on several are concurrent.
//
// Processes outlive a supervisor that dies; the receiver of Config.Changed then has to end them.
package supervise
