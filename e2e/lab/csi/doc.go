// Package csi is the part of the simulated cloud's CSI driver (cloudapi.CSIDriver) that runs in the
// cluster, next to its Nodes: it creates volumes for PersistentVolumeClaims and removes them (the
// provisioner), and attaches volumes where VolumeAttachments require it and detaches them (the
// attacher).
//
// It is a client of the cloud's API like others. Latency, faults and the call log apply to its
// calls: how long an attach takes is the cloud's latency of AttachVolume.
//
// Guarantees: a claim gets one volume, regardless of the number of attempts. A VolumeAttachment
// reports that its volume is attached after the cloud has reported it, and is deleted when the
// volume is not attached to that VM any more. The IDs of its volume and its VM are recorded on it
// first, so that it can be deleted without its Node and its PersistentVolume.
//
// Not guaranteed: a volume whose claim is deleted while the volume is being created is not removed.
// Volumes cannot be resized, cloned or restored, and only one Node at a time can use them
// (ReadWriteOnce).
package csi
