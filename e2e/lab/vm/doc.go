// Package vm runs a real kubelet in an environment that behaves like a virtual machine, as far as a
// cluster and a cloud can observe: it has a name and a disk, it is switched off by ending one
// process, and then nothing of it is left running, pods included.
//
// The machine is a set of Linux namespaces. `lab vm` (the hull, which the cloud starts and ends)
// starts `lab vm-init`, the first process of a PID namespace, which dies with the hull, and with
// which the kernel ends everything inside. Init has a mount namespace, in which /run and /var are
// the machine's own; /var/lib/kubelet and /var/log/pods are folders of the machine's disk
// (Config.Dir) and survive a reboot, and the volumes of its cloud are below /run/cloud. It starts
// `hyperkube kubelet`, reaps orphans, and on SIGTERM shuts down as a machine does. If the kubelet
// ends, so does the machine.
//
// With Config.Daemon the machine is configured by a machine-config-daemon, which sees a folder of
// the disk as the machine's root (RootDir). Init then takes the place of systemd for both
// processes: it starts each again a second after it has ended. The kubelet reads its settings from
// that root when it starts. On SIGINT, with which the daemon requests a reboot, init shuts down,
// and the hull leaves RebootFile for the cloud, which has to switch the machine on again. Each boot
// has an ID.
//
// User data that is a #cloud-config is carried out in that root, before kubelet and daemon start,
// and decides whether they do: at the first boot by its lines, at later ones by the units that it
// has enabled. Of all units in the root these are the only ones that are read. A unit of user data
// runs the machine-config-daemon that the machine has, and no other program. A machine whose user
// data is not valid stays on without a kubelet, and its console has the reason. Of other user data
// the machine reads nothing.
//
// It is no sandbox: apart from /run, /var and /proc the machine sees, and with root's rights may
// write, its host's files; it shares the host's network, and has no limits of memory and CPU.
//
// Without root it runs in a user namespace with a single user: all processes inside are root there,
// and its owner outside. A pod with another user does not start then, unless it has no service
// account token, which the kubelet would have to give to that user.
//
// Of user data this package reads the part of cloud-init's #cloud-config that
// docs/operations/machine-config.md uses for the first configuration of a machine: write_files, and
// runcmd with systemctl. Anything else is an error, because a machine that skips a part of its user
// data shows nothing about it.
package vm
