package main

import (
	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

// instance is a machine of a node group.
type instance struct {
	// ID is the provider ID of the Node, or, while there is none, requested://<machine>.
	ID      string `json:"id"`
	Machine string `json:"machine"`
	// Creating reports whether the VM is being created.
	Creating bool           `json:"creating,omitempty"`
	Error    *instanceError `json:"error,omitempty"`
}

// instanceError is the reason why there is no VM.
type instanceError struct {
	// Class decides what the cluster-autoscaler does: after OutOfResources it tries other node groups
	// at once.
	Class   string `json:"class"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// The classes of errors.
const (
	outOfResources = "OutOfResources"
	otherError     = "Other"
)

// instancesOf returns the instances of a node group: their machines have its name as the label
// name.
func instancesOf(name string, machines []v1alpha1.Machine, nodes []corev1.Node) []instance {
	ids := map[string]string{}
	for _, n := range nodes {
		ids[n.Name] = n.Spec.ProviderID
	}
	all := []instance{} // "[]" as JSON when there are none
	for _, m := range machines {
		if m.Labels["name"] != name {
			continue
		}
		i := instance{ID: requested + m.Name, Machine: m.Name}
		if id, joined := ids[m.Labels["node"]]; joined {
			i.ID = id
		} else {
			i.Creating, i.Error = creation(m.Status.LastOperation)
		}
		all = append(all, i)
	}
	return all
}

// creation reports whether a VM is being created, and its error.
func creation(op v1alpha1.LastOperation) (creating bool, err *instanceError) {
	if op.Type != v1alpha1.MachineOperationCreate {
		return false, nil
	}
	if op.State == v1alpha1.MachineStateFailed {
		err = &instanceError{Class: otherError, Code: op.ErrorCode, Message: op.Description}
		if op.ErrorCode == "ResourceExhausted" {
			err.Class = outOfResources
		}
	}
	return true, err
}
