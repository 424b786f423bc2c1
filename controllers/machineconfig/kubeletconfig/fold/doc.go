// Package fold folds the KubeletConfigs of a pool over the pool's default into one
// KubeletConfiguration, and creates the MachineConfig that has it. It is pure.
//
// A KubeletConfig has fields of a KubeletConfiguration (kubelet.config.k8s.io/v1beta1). They are
// merged as a JSON merge patch (RFC 7386), the oldest first: objects are merged by key, lists and
// values replace, null removes. So false, 0 and an empty list are values like all others.
//
// Each KubeletConfig is checked strictly before: unknown fields, values of another type, numbers
// out of their range, and fields that are the cluster's to decide are refused. While one that
// selects the pool is invalid, nothing is generated, and Nodes keep what they have: leaving it out
// would undo what it did before it was changed.
//
// Guarantees: equal inputs have equal results regardless of the order in which they are passed;
// every field of the result is one of a KubeletConfiguration, and has its type. Not guaranteed:
// that a kubelet starts with it. The versions of kubelets differ, and most values are not checked.
package fold
