package main

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

// refusal is the reason why the cluster-autoscaler rejects an operation, as an error.
type refusal string

func (r refusal) Error() string { return string(r) }

// The refusals.
const (
	errRolling    refusal = "machines are being replaced"
	errSize       refusal = "the size is at its limit"
	errOtherGroup refusal = "the Node is of another node group"
	errNoOwner    refusal = "the machine has no owner"
	errTemplate   refusal = "the class has too few properties of its Nodes"
	errKind       refusal = "the class is of another kind"
	errOffline    refusal = "machine-controller-manager is offline"
)

// group is a node group: a MachineDeployment with its minimum and maximum size.
type group struct {
	min, max        int
	namespace, name string
}

// groups are the node groups by name; they are a flag that may be repeated.
type groups map[string]group

// String returns an empty text; flag.Value requires it.
func (groups) String() string { return "" }

// Set adds a group, from its text.
func (all groups) Set(text string) error {
	g, err := parseGroup(text)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.namespace != g.namespace {
			return fmt.Errorf("want groups of one namespace, got %s and %s", other.namespace, g.namespace)
		}
	}
	all[g.name] = g
	return nil
}

// namespace is that of all groups.
func (all groups) namespace() string {
	for _, g := range all {
		return g.namespace
	}
	return ""
}

// parseGroup reads <min>:<max>:<namespace>.<name>.
func parseGroup(text string) (group, error) {
	parts := strings.SplitN(text, ":", 3)
	if len(parts) == 3 {
		least, err1 := strconv.Atoi(parts[0])
		most, err2 := strconv.Atoi(parts[1])
		namespace, name, found := strings.Cut(parts[2], ".")
		if err1 == nil && err2 == nil && 0 <= least && least <= most && found && namespace != "" && name != "" {
			return group{least, most, namespace, name}, nil
		}
	}
	return group{}, fmt.Errorf("want a node group as <min>:<max>:<namespace>.<MachineDeployment>, got %q", text)
}

// requested is the prefix of the ID of a machine that has no Node yet. The name of the machine
// follows.
const requested = "requested://"

// machineOf finds the machine of a Node, by its provider ID or by the ID of a machine without a
// Node. Formats of provider IDs differ, so their last elements are compared. It is nil when there
// is none.
func machineOf(id string, machines []v1alpha1.Machine) *v1alpha1.Machine {
	last := path.Base(id)
	for i, m := range machines {
		if m.Name == last || m.Spec.ProviderID != "" && path.Base(m.Spec.ProviderID) == last {
			return &machines[i]
		}
	}
	return nil
}

// deploymentOf follows the first owners of a machine up to its MachineDeployment.
func deploymentOf(m *v1alpha1.Machine, sets []v1alpha1.MachineSet) (string, error) {
	if len(m.OwnerReferences) == 0 {
		return "", fmt.Errorf("machine %s: %w", m.Name, errNoOwner)
	}
	for _, set := range sets {
		if set.Name != m.OwnerReferences[0].Name {
			continue
		}
		if len(set.OwnerReferences) == 0 {
			return "", fmt.Errorf("MachineSet %s of machine %s: %w", set.Name, m.Name, errNoOwner)
		}
		return set.OwnerReferences[0].Name, nil
	}
	return "", fmt.Errorf("machine %s: there is no MachineSet %s", m.Name, m.OwnerReferences[0].Name)
}
