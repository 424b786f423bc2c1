// Package cri is a container runtime for a kubelet: its containers are local processes (see package container), and its
// images are names.
//
// Every image can be pulled. A container runs its command and its arguments. One that has no command runs the program of
// its image, if there is a file for it (Config.Images): the container sees that file below its root, by the name of the image, and
// nothing else of the image. Without arguments, too, pause and some images with only a shell run what they are known for.
//
// A pod's address is that of its machine, and its ports are the machine's, as with hostNetwork: two pods on a machine cannot
// listen on the same port.
//
// There are logs, exec probes, exec and port-forward, but no terminals, no attach, and no statistics. No state is
// stored: a kubelet that starts again finds no pods, which is correct, since they have ended with its machine.
package cri
