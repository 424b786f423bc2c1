// Package csi is the node part of the simulated cloud's CSI driver (cloudapi.CSIDriver): it runs in a machine with a real
// kubelet, beside it, and the kubelet finds it through its plugin watcher. Package controller is the other part.
//
// A volume is a folder with its contents, which all machines of the cloud see, so that data follow the volume. To stage a
// volume is to mount that folder, to publish it to mount it once more.
//
// What holds: a volume that the cloud has not attached to this machine is not staged, and one that is not staged is not
// published. All calls can be repeated.
//
// What does not: what is mounted stays usable when the cloud detaches the volume from under it, as it does for those who
// ask it to: nobody here can take a file system away from those who have files open. The attach/detach controller does
// not ask for it, except by force. A volume has no size that would limit it, no statistics, and no block mode.
package csi
