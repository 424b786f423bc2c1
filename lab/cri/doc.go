// Package cri is a container runtime for a kubelet: its containers are local processes (see package container), and its
// images are names.
//
// Every image can be pulled. A container runs its command and its arguments; one that has no command runs that of a table
// for its image, which has pause, and some images with only a shell. A pod's address is that of its machine,
// and its ports are the machine's, so two pods on a machine cannot listen on the same port.
//
// There are logs, exec probes, exec and port-forward, but no terminals, no attach, and no statistics. No state is
// stored: a kubelet that starts again finds no pods, which is correct, since they have ended with its machine.
package cri
