package scale

import (
	"fmt"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// releasedFor is for how long the condition MachinesReleased lasts. A client that removes labels
// again and again keeps it True.
const releasedFor = time.Hour

// Released returns the message about machines that were released.
func Released(names []string) string {
	return fmt.Sprintf("Released %d machines, because their labels do not match the selector; others are created in their place: %s",
		len(names), strings.Join(names, ", "))
}

// released returns the condition when machines were released, and for some time after the last
// release.
func released(w World) machinefacts.Condition {
	is := machinefacts.MachineSetCondition(&w.Set.Status, v1alpha1.MachineSetMachinesReleased)
	switch {
	case len(w.Done.Released) > 0:
		return machinefacts.True(v1alpha1.ReasonLabelsDoNotMatch, Released(w.Done.Released))
	case is != nil && releasedStill(w.Now, is) <= 0:
		return machinefacts.Condition{}
	}
	return machinefacts.ConditionOfSet(&w.Set.Status, v1alpha1.MachineSetMachinesReleased)
}

// releasedStill returns for how long the condition lasts.
func releasedStill(now time.Time, is *v1alpha1.MachineSetCondition) time.Duration {
	return is.LastTransitionTime.Add(releasedFor).Sub(now)
}
