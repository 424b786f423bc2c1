// Package launcher implements `lab up` and the other commands of a lab, and the process behind
// them.
//
// A lab is a folder with a cluster (or two) of local processes, a simulated cloud, and a fleet.
// `lab up` starts the launcher, a process in the background that starts everything else, reaps it,
// and controls it through an HTTP API (see Launcher.ServeHTTP). It writes the processes and their
// addresses into files of the folder (see Folder), which are its interface to tests and people.
//
// For the replicas the launcher takes the place of a StatefulSet and a kubelet: it gives each a pod
// with a UID and a folder, restarts a process that has ended by itself, once it has been reaped,
// and ends a pod with 30 s of grace. It is also the network between a replica and the servers:
// three proxies for each, which can be cut or slowed down. No other process is restarted by itself.
//
// Down ends exactly what was started, also when the launcher has died. It identifies processes by
// the records in the folder, number and time of start, and by a variable in their environment that
// all descendants inherit; never by name.
//
// A second `lab up` in the same folder starts anew: no state of an earlier run is used, its logs
// are removed.
package launcher
