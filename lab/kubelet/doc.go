// Package kubelet is the kubelet of a lab's machine (see package vm): the code of Kubernetes, with package cri for a
// container runtime. What it would learn of its machine by looking (cores, memory) it is told, and it leaves control
// groups alone.
//
// If the machine has a cloud with volumes, the node part of the cloud's CSI driver (package csi) runs in it, too.
//
// It joins its cluster as kubelets do, with a bootstrap token and a signed certificate. It expects a cloud that reports
// the Node's addresses and takes the taint node.cloudprovider.kubernetes.io/uninitialized away.
package kubelet
