// Package defaults finds the kubelet's settings that the MachineConfigs of a pool have by
// themselves: the default that KubeletConfigs are folded over. It sends no request.
//
// Guarantees: equal inputs have equal results, and no error has content of a file. Not guaranteed:
// that the settings are those of a KubeletConfiguration; package fold checks them.
package defaults
