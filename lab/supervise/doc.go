// Package supervise starts, signals and reaps the processes of a lab.
//
// It does what it is told and nothing else. A process that ends stays ended until somebody starts it again, unless it
// ended unasked and its Spec has a restart policy: then it comes back after a back-off, as a container does under a
// kubelet, and never before the old process has been reaped. Whoever asks for an end (Stop, Kill, Crash) gets an answer
// when the process has been reaped and Config.Changed has been told. Actions on one process follow each other; those on
// several go side by side.
//
// Processes outlive a supervisor that dies; ending them is then up to whoever has kept what Config.Changed was told.
package supervise
