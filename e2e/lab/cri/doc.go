// Package cri is a container runtime for a kubelet: its containers are local processes (see package
// container), and its images are names.
//
// Every image can be pulled. A container runs its command and its arguments. One that has no
// command runs the program of its image, if there is a file for it (Config.Images): the container
// sees that file below its root, by the name of the image, and nothing else of the image. Without
// arguments, too, pause and some images with only a shell run what they are known for.
//
// A pod's address is that of its machine, and its ports are the machine's, as with hostNetwork: two
// pods on a machine cannot listen on the same port.
//
// There are logs, exec probes, exec and port-forward, but no terminals, no attach, and no
// statistics. No state is stored: a kubelet that starts again finds no pods, which is correct,
// since they have ended with its machine.
//
// In addition it contains the node part of the simulated cloud's CSI driver (cloudapi.CSIDriver):
// the kubelet finds it through its plugin watcher. Package csi is the other part.
//
// A volume is a folder with its contents, which all machines of the cloud see, so that data follow
// the volume. Staging a volume mounts that folder, publishing it mounts it once more.
//
// Guarantees: a volume that the cloud has not attached to this machine is not staged, and one that
// is not staged is not published. All calls can be repeated.
//
// Not guaranteed: that a mounted volume becomes unusable when the cloud detaches it, as it does on
// request: a file system cannot be removed here while files are open. The attach/detach controller
// requests that only by force. A volume has no size limit, no statistics, and no block mode.
package cri
