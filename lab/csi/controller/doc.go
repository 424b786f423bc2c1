// Package controller is the part of the simulated cloud's CSI driver (cloudapi.CSIDriver) that runs in the cluster, beside
// its Nodes: it makes volumes for PersistentVolumeClaims and removes them (the provisioner), and attaches volumes where
// VolumeAttachments ask for it and detaches them (the attacher).
//
// It is a client of the cloud's API like everybody else. Latency, faults and the call log apply to its calls: how long an
// attach takes is the cloud's latency of AttachVolume.
//
// What holds: a claim gets one volume, however often that is tried. A VolumeAttachment says that its volume is attached
// when the cloud has said so, and goes when the volume is not attached to that VM any more. Which volume and which VM it is
// about is noted on it first, so that it can go without its Node and its PersistentVolume.
//
// What does not: a volume whose claim is deleted while it is being made stays. Volumes cannot be resized, cloned or
// restored, and only one Node at a time has them (ReadWriteOnce).
package controller
