package merge

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
)

// Select returns the MachineConfigs of a pool, sorted by name: those that its selector matches, and
// the one that was folded of KubeletConfigs for it. That of another pool is not selected,
// regardless of what its labels are: of two pools that share MachineConfigs, each keeps its own
// kubelet settings. A MachineConfig that is being deleted is not selected. Errors: a *Error when
// the selector is invalid, would select all MachineConfigs, or selects none.
func Select(pool *v1alpha1.MachineConfigPool, configs []*v1alpha1.MachineConfig) ([]*v1alpha1.MachineConfig, error) {
	selector, err := selectorOf(pool)
	if err != nil {
		return nil, err
	}
	var selected []*v1alpha1.MachineConfig
	for _, c := range configs {
		if c.DeletionTimestamp == nil && isSelected(pool.Name, selector, &c.ObjectMeta) {
			selected = append(selected, c)
		}
	}
	if len(selected) == 0 {
		return nil, &Error{
			Reason: ReasonNoMachineConfigs,
			Fact:   "spec.machineConfigSelector matches no MachineConfig. Label one, or correct the selector.",
		}
	}
	slices.SortFunc(selected, byName)
	return selected, nil
}

// byName is the order in which MachineConfigs are merged.
func byName(a, b *v1alpha1.MachineConfig) int { return cmp.Compare(a.Name, b.Name) }

// selectorOf returns the selector of a pool. Errors: a *Error.
func selectorOf(pool *v1alpha1.MachineConfigPool) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(pool.Spec.MachineConfigSelector)
	if err != nil {
		return nil, &Error{Reason: ReasonInvalidPool, Fact: "spec.machineConfigSelector is invalid: " + err.Error()}
	}
	if selector.Empty() {
		return nil, &Error{
			Reason: ReasonInvalidPool,
			Fact:   "spec.machineConfigSelector is empty, and would select every MachineConfig. Set at least one label.",
		}
	}
	return selector, nil
}

func isSelected(pool string, selector labels.Selector, config *metav1.ObjectMeta) bool {
	if config.Annotations[v1alpha1.AnnotationGeneratedBy] == v1alpha1.GeneratedFromKubeletConfigs {
		return config.Labels[v1alpha1.LabelPool] == pool
	}
	return selector.Matches(labels.Set(config.Labels))
}

// Affected returns the names of the pools that a change of a MachineConfig concerns, sorted: those
// that selected it before, and those that select it now. A config that was created has no before,
// one that was deleted no after.
func Affected(pools []*v1alpha1.MachineConfigPool, before, after *metav1.ObjectMeta) []string {
	var names []string
	for _, pool := range pools {
		selector, err := selectorOf(pool)
		if err != nil {
			continue // it reports so itself, and selects nothing
		}
		if before != nil && isSelected(pool.Name, selector, before) || after != nil && isSelected(pool.Name, selector, after) {
			names = append(names, pool.Name)
		}
	}
	slices.Sort(names)
	return names
}
