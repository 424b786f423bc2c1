// Package kubelet is the kubelet of a lab's machine (see package vm): the code of Kubernetes, with package cri for a
// container runtime. The hardware that it would detect (cores, memory) is configured, and it does not use control
// groups.
//
// If the machine has a cloud with volumes, the node part of the cloud's CSI driver (package csi) runs in it, too.
//
// Its settings are those of the machine's configuration (vm.KubeletConfigPath), if there is one, but for what the lab depends on: addresses,
// ports, certificates, and what needs control groups. With settings that are not valid it does not start.
//
// It joins its cluster as kubelets do, with a bootstrap token and a signed certificate. It expects a cloud that reports
// the Node's addresses and removes the taint node.cloudprovider.kubernetes.io/uninitialized.
package kubelet
