package protocol

import (
	"errors"
	"fmt"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// Settings are the identity of a replica and the settings that its fleet was installed with.
type Settings struct {
	// Config has the durations.
	Config member.Config
	// Assignment has the durations and limits of assigning slots.
	Assignment assignment.Config
	// Fleet is the fleet's name, the prefix of all its Leases.
	Fleet string
	// Namespace is the namespace of the Leases.
	Namespace string
	// Replica is the replica's name.
	Replica string
	// Session is the session's identity: member.Identity(Replica, 5 random characters).
	Session string
	// PodUID is the UID of the pod that the process runs in; empty if it is not known.
	PodUID string
	// Exclusive is true if the process holds the exclusive file lock in the pod's own volume.
	Exclusive bool
	// Capacity is how much the replica should hold in relation to others. Default 1.
	Capacity float64
	// Slots is the number of slots.
	Slots int
	// ShardBy is the part of a root's key that decides its slot: "deployment" or "namespace".
	ShardBy string
	// RingVersion is the version of the hash and the consistent-hash table.
	RingVersion string
}

// Validate returns all errors of the settings.
func (s Settings) Validate() error {
	errs := []error{s.Config.Validate(), s.Assignment.Validate()}
	if replica, ok := member.ReplicaOf(s.Session); !ok || replica != s.Replica {
		errs = append(errs,
			fmt.Errorf("session: expected %s, an underscore and 5 random lower-case letters and digits, got %q", s.Replica, s.Session))
	}
	if s.Fleet == "" || s.Namespace == "" {
		errs = append(errs, fmt.Errorf("expected a fleet and a namespace, got %q and %q", s.Fleet, s.Namespace))
	}
	if s.Slots < 1 || s.Slots > assignment.MaxSlots {
		errs = append(errs, fmt.Errorf("slots: expected 1 to %d, got %d", assignment.MaxSlots, s.Slots))
	}
	if s.Capacity < 0 {
		errs = append(errs, fmt.Errorf("capacity: expected more than 0, or 0 for the default of 1, got %v", s.Capacity))
	}
	return errors.Join(errs...)
}

// fixed is a setting that is fixed when the fleet is installed. If two replicas differ in one,
// their slots are not the same, or one of them could take over what the other may still act on.
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

// Record returns the annotations that record the fixed settings: on the leader Lease those that the
// fleet was installed with, and on a session Lease those of the session.
func Record(s Settings) map[string]string {
	record := map[string]string{}
	for _, f := range fixedSettings(s) {
		record[f.annotation] = f.value
	}
	return record
}

// CheckLease compares the settings that a leader Lease or a session Lease records with s. A session
// Lease without a holder records nothing: its session has ended. A setting that is missing does not
// differ: earlier versions did not record it. Errors: the settings that differ, with both values
// and the next step.
func CheckLease(s Settings, l *coordinationv1.Lease) error {
	var errs []error
	_, isSession := member.ReplicaOfLease(s.Fleet, l.Name)
	for _, f := range fixedSettings(s) {
		recorded, ok := l.Annotations[f.annotation]
		switch {
		case !ok || recorded == f.value:
		case l.Name == member.LeaderLeaseName(s.Fleet):
			errs = append(errs,
				fmt.Errorf("%s: the fleet was installed with %s, got %s; give this replica the fleet's value, or install another fleet",
					f.flag, recorded, f.value))
		case isSession && member.Holder(l) != "":
			errs = append(errs, fmt.Errorf("%s: session %s of the fleet runs with %s, got %s; give this replica the fleet's value, "+
				"or delete the Lease %s if the process of this session has ended", f.flag, member.Holder(l), recorded, f.value, l.Name))
		}
	}
	return errors.Join(errs...)
}
