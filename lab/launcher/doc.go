// Package launcher is the lab as its users meet it: `lab up` and its companions, and the process behind them.
//
// A lab is a folder with a cluster (or two) of local processes, a simulated cloud, and a fleet. `lab up` starts the
// launcher, a process in the background that starts everything else, reaps it, and answers for it through an HTTP API
// (see Launcher.ServeHTTP). It writes what lives where into files of the folder (see Folder), which are its interface to
// tests and people.
//
// To the replicas the launcher is what a StatefulSet and a kubelet would be: it gives each a pod with a UID and a folder,
// starts a process again that has ended unasked, once it has been reaped, and ends a pod with 30 s of grace. It is also
// the network between a replica and the servers: three proxies for each, which can be cut or slowed down. Nothing else is
// started again unasked.
//
// Down ends exactly what was started, also when the launcher has died. It recognises processes by what it finds in the
// folder, number and time of start, and by a variable in their environment that all descendants inherit; never by name.
//
// A second `lab up` in the same folder starts afresh: nothing of an earlier run is used, its logs are removed.
package launcher
