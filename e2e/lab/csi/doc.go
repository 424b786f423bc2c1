// Package csi is the node part of the simulated cloud's CSI driver (cloudapi.CSIDriver): it runs in a machine with a real
// kubelet, beside it, and the kubelet finds it through its plugin watcher. Package controller is the other part.
//
// A volume is a folder with its contents, which all machines of the cloud see, so that data follow the volume. Staging a
// volume mounts that folder, publishing it mounts it once more.
//
// Guarantees: a volume that the cloud has not attached to this machine is not staged, and one that is not staged is not
// published. All calls can be repeated.
//
// Not guaranteed: that a mounted volume becomes unusable when the cloud detaches it, as it does on request: a file system
// cannot be removed here while files are open. The attach/detach controller requests that only by force. A volume has no
// size limit, no statistics, and no block mode.
package csi
