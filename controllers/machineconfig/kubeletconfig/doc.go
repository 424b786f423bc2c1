// Package kubeletconfig is the KubeletConfigController: it keeps the MachineConfig that the
// KubeletConfigs of a pool are folded into as package fold decides, and writes the status of
// KubeletConfigs.
//
// The default of a pool is the file kubelet.Path that its other MachineConfigs result in; without
// one it is empty.
//
// Guarantees: the generated MachineConfig of a pool has one writer, the owner of the pool; it is
// written again when another client has changed or deleted it, and deleted when no KubeletConfig
// selects the pool. The status of a KubeletConfig has one writer, the owner of its slot name, which
// calculates the results for all pools itself: they follow from what every replica can read. It
// reports settings as applied when the generated MachineConfigs have them.
//
// Not guaranteed: that a client which changes the generated MachineConfig again and again loses.
package kubeletconfig
