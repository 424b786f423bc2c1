package protocol

import (
	"errors"
	"fmt"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// fixed is a setting that is fixed when the fleet is installed. If two replicas differ in one, their slots are not the same, or
// one of them could take over what the other may still act on.
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

// Record returns the annotations that record the fixed settings: on the leader Lease those that the fleet was installed with, and
// on a session Lease those of the session.
func Record(s Settings) map[string]string {
	record := map[string]string{}
	for _, f := range fixedSettings(s) {
		record[f.annotation] = f.value
	}
	return record
}

// CheckLease compares the settings that a leader Lease or a session Lease records with s. A session Lease without a holder
// records nothing: its session has ended. A setting that is missing does not differ: earlier versions did not record it.
// Errors: the settings that differ, with both values and the next step.
func CheckLease(s Settings, l *coordinationv1.Lease) error {
	var errs []error
	_, isSession := member.ReplicaOfLease(s.Fleet, l.Name)
	for _, f := range fixedSettings(s) {
		recorded, ok := l.Annotations[f.annotation]
		switch {
		case !ok || recorded == f.value:
		case l.Name == member.LeaderLeaseName(s.Fleet):
			errs = append(errs, fmt.Errorf("%s: the fleet was installed with %s, got %s; give this replica the fleet's value, or install another fleet",
				f.flag, recorded, f.value))
		case isSession && member.Holder(l) != "":
			errs = append(errs, fmt.Errorf("%s: session %s of the fleet runs with %s, got %s; give this replica the fleet's value, "+
				"or delete the Lease %s if the process of this session has ended", f.flag, member.Holder(l), recorded, f.value, l.Name))
		}
	}
	return errors.Join(errs...)
}
