// Package kubelet is the kubelet of a lab's machine (see package vm): the code of Kubernetes, with package cri for a
// container runtime. The hardware that it would detect (cores, memory) is configured, and it does not use control
// groups.
//
// If the machine has a cloud with volumes, the node part of the cloud's CSI driver (package csi) runs in it, too.
//
// It joins its cluster as kubelets do, with a bootstrap token and a signed certificate. It expects a cloud that reports
// the Node's addresses and removes the taint node.cloudprovider.kubernetes.io/uninitialized.
package kubelet
