package scale

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// releasedFor is for how long the condition MachinesReleased lasts. A client that removes labels again and again keeps it True.
const releasedFor = time.Hour

// Released returns the message about machines that were released.
func Released(names []string) string {
	return fmt.Sprintf("Released %d machines, because their labels do not match the selector any more; others are created in their place: %s",
		len(names), strings.Join(names, ", "))
}

// setReleased sets the condition when machines were released, and removes it some time after the last release.
func setReleased(w World, s *v1alpha1.MachineSetStatus) {
	is := machinefacts.MachineSetCondition(s, v1alpha1.MachineSetMachinesReleased)
	switch {
	case len(w.Done.Released) > 0:
		machinefacts.DropMachineSetCondition(s, v1alpha1.MachineSetMachinesReleased) // so that its time is that of the last release
		machinefacts.PutMachineSetCondition(s, v1alpha1.MachineSetCondition{
			Type: v1alpha1.MachineSetMachinesReleased, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonLabelsDoNotMatch, Message: Released(w.Done.Released),
		}, w.Now)
	case is != nil && releasedStill(w.Now, is) <= 0:
		machinefacts.DropMachineSetCondition(s, v1alpha1.MachineSetMachinesReleased)
	}
}

// releasedStill returns for how long the condition lasts.
func releasedStill(now time.Time, is *v1alpha1.MachineSetCondition) time.Duration {
	return is.LastTransitionTime.Add(releasedFor).Sub(now)
}
