package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

// The generations of scale-down.
const (
	// setsPriorities is the first one: machines get a priority, and the replicas are lowered in
	// another write.
	setsPriorities = 1
	// marks is the second one: machines are named on the MachineDeployment, in the write that lowers
	// the replicas.
	marks = 2
	// marksWithTime is the third one: each name has the time at which it was written.
	marksWithTime = 3
)

const (
	annotationTrigger  = "node.machine.sapcloud.io/trigger-deletion-by-mcm"
	annotationChanged  = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time"
	annotationPriority = "machinepriority.machine.sapcloud.io"
	priorityFirst      = "1"
	annotationKept     = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
)

// rolling reports whether machines of the MachineDeployment are being replaced, so that none may be
// removed. Without the condition none are.
func rolling(d *v1alpha1.MachineDeployment) bool {
	for _, c := range d.Status.Conditions {
		if c.Type == v1alpha1.MachineDeploymentProgressing {
			done := c.Status == v1alpha1.ConditionTrue && c.Reason == "NewMachineSetAvailable"
			paused := c.Status == v1alpha1.ConditionUnknown && c.Reason == "DeploymentPaused"
			return !done && !paused
		}
	}
	return false
}

// marked returns the names of the machines that the MachineDeployment lists for deletion.
func marked(d *v1alpha1.MachineDeployment) []string {
	var names []string
	for _, entry := range entries(d) {
		name, _, _ := strings.Cut(entry, "~")
		names = append(names, name)
	}
	return names
}

func entries(d *v1alpha1.MachineDeployment) []string {
	if value := d.Annotations[annotationTrigger]; value != "" {
		return strings.Split(value, ",")
	}
	return nil
}

// lowered returns the MachineDeployment to write for the deletion of some of its machines, and
// those that were not marked before: these count. It is nil when all of them were.
func lowered(
	d *v1alpha1.MachineDeployment, machines []string, generation int, now time.Time,
) (*v1alpha1.MachineDeployment, []string, error) {
	before := marked(d)
	fresh := slices.DeleteFunc(slices.Clone(machines), func(name string) bool { return slices.Contains(before, name) })
	if len(fresh) == 0 {
		return nil, nil, nil
	}
	if int(d.Spec.Replicas) < len(fresh) {
		return nil, nil, fmt.Errorf("%d replicas less than %d: %w", len(fresh), d.Spec.Replicas, errSize)
	}
	d = d.DeepCopy()
	d.Spec.Replicas -= int32(len(fresh))
	if generation < marks {
		return d, fresh, nil
	}
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	all, at := entries(d), ""
	if generation == marksWithTime {
		now := now.UTC().Format(time.RFC3339)
		at, d.Annotations[annotationChanged] = "~"+now, now
	}
	for _, name := range fresh {
		all = append(all, name+at)
	}
	d.Annotations[annotationTrigger] = strings.Join(all, ",")
	return d, fresh, nil
}

// exempt returns the reason why a machine is not removed, "" if it is.
func exempt(m *v1alpha1.Machine, preserved, kept bool) string {
	switch {
	case m.DeletionTimestamp != nil:
		return "it is being deleted"
	case m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed:
		return "it has failed"
	case preserved:
		return "it is preserved"
	case kept:
		return "its Node is not to be scaled down"
	}
	return ""
}
