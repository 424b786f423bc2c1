// Package realkubelet runs VMs as processes: each is a command that runs a real kubelet, which joins the cluster through
// TLS bootstrap with the token from the VM's user data.
//
// A VM outlives this process and is found again after a restart, by the folder that its environment names. A VM whose
// processes are gone has died. PowerOff ends all its processes and removes its folder. A VM that is not healthy is
// stopped where it stands (SIGSTOP), and continues when it recovers.
//
// The volumes that are attached to a VM are files in a folder of it, and their contents folders that all VMs see: whether a
// VM uses only those that are attached to it is left to its CSI driver (package csi). Volumes of a VM that is switched off
// are free when all its processes have ended, which the cloud is told.
//
// Kubelets of VMs in a cloud leave some things to the cloud's controller manager: this package sets the addresses and the
// labels of region, zone and instance type on their Nodes, and takes the taint off that they start with.
//
// The command gets the flags of Host.args. It has to stay in the foreground while the VM is on, to hand its environment
// down to its processes, and to end them all when it ends: SIGTERM shuts the VM down, SIGKILL is the power switch.
package realkubelet
