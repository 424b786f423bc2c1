package state

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// fixed is a setting that is fixed when the fleet is installed. The slots of two replicas that differ in one are not the same
// slots, or one of them could take what the other may still act on.
type fixed struct{ annotation, flag, value string }

func fixedSettings(s Settings) []fixed {
	return []fixed{
		{v1alpha1.AnnotationSlots, "--slots", strconv.Itoa(s.Slots)},
		{v1alpha1.AnnotationShardBy, "--shard-by", s.ShardBy},
		{v1alpha1.AnnotationRingVersion, "the ring's version", s.RingVersion},
		{v1alpha1.AnnotationFence, "--lease-fence", s.Config.Fence.String()},
		{v1alpha1.AnnotationTakeOver, "--lease-take-over", s.Config.TakeOver.String()},
	}
}

// Record returns the annotations of the leader Lease that fix what the fleet was installed with.
func Record(s Settings) map[string]string {
	record := map[string]string{}
	for _, f := range fixedSettings(s) {
		record[f.annotation] = f.value
	}
	return record
}

// CheckRecord compares the leader Lease's annotations with the settings. Errors: a value that differs, naming both. What
// is not recorded yet does not differ.
func CheckRecord(s Settings, annotations map[string]string) error {
	var errs []error
	for _, f := range fixedSettings(s) {
		if recorded, ok := annotations[f.annotation]; ok && recorded != f.value {
			errs = append(errs, fmt.Errorf("%s: the fleet was installed with %s, got %s; give this replica the fleet's value, or install another fleet",
				f.flag, recorded, f.value))
		}
	}
	return errors.Join(errs...)
}
