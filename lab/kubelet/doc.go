// Package kubelet is the kubelet of a lab's machine (see package vm): the code of Kubernetes, with package cri for a
// container runtime. What it would learn of its machine by looking (cores, memory) it is told, and it leaves control
// groups alone.
//
// It joins its cluster as kubelets do, with a bootstrap token and a signed certificate. It expects a cloud that reports
// the Node's addresses and takes the taint node.cloudprovider.kubernetes.io/uninitialized away.
package kubelet
