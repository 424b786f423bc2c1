// Package realkubelet runs VMs as processes: each is a command that runs a real kubelet, which
// joins the cluster through TLS bootstrap with the token from the VM's user data.
//
// A VM keeps running when this process ends and is found again after a restart, by the folder in
// its environment. A VM whose processes have ended has died. PowerOff ends all its processes and
// removes its folder. A VM that is not healthy is stopped (SIGSTOP), and continues when it
// recovers.
//
// The volumes that are attached to a VM are files in a folder of it, and their contents folders
// that all VMs see: whether a VM uses only those that are attached to it is decided by its CSI
// driver (package cri). Volumes of a VM that is switched off are released when all its processes
// have ended, which is reported to the cloud.
//
// Kubelets of VMs in a cloud depend on the cloud's controller manager for some fields: this package
// sets the addresses and the labels of region, zone and instance type on their Nodes, and removes
// the taint that they start with.
//
// The command gets the flags of Host.args. It has to stay in the foreground while the VM is on, to
// pass its environment on to its processes, and to end them all when it ends: SIGTERM shuts the VM
// down, SIGKILL switches it off. If it has created a file called reboot in the VM's folder when it
// ends, the VM has not died: it is switched on again.
package realkubelet
