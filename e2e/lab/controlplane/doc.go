// Package controlplane describes how the components of a cluster are started as local processes: their secrets, files, flags
// and probes. It starts nothing itself.
//
// Everything listens on the loopback interface, uses TLS, and keeps its files in the lab's folder. A second cluster has
// its own authorities and users, and shares only etcd, under a prefix of its own.
package controlplane
