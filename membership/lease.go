package membership

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectversion"
)

// suffixLength is the number of random characters that distinguish the sessions of a replica.
const suffixLength = 5

// SessionLeaseName returns the name of a replica's session Lease.
func SessionLeaseName(fleet, replica string) string { return fleet + "-session-" + replica }

// ReportLeaseName returns the name of the Lease with what a replica reports about its slots and
// machines.
func ReportLeaseName(fleet, replica string) string { return fleet + "-report-" + replica }

// SlotLeaseName returns the name of a slot's Lease: the number has three digits, or four if there
// are more than 1000 slots.
func SlotLeaseName(fleet string, slot, slots int) string {
	return fmt.Sprintf("%s-slot-%0*d", fleet, slotDigits(slots), slot)
}

// LeaderLeaseName returns the name of the leader Lease.
func LeaderLeaseName(fleet string) string { return fleet + "-leader" }

// ReplicaOfLease returns the replica whose session Lease has the name; ok is false for any other
// Lease.
func ReplicaOfLease(fleet, name string) (replica string, ok bool) {
	replica, ok = strings.CutPrefix(name, SessionLeaseName(fleet, ""))
	return replica, ok && replica != ""
}

// ReplicaOfReport returns the replica whose report is on the Lease of that name; ok is false for
// any other Lease.
func ReplicaOfReport(fleet, name string) (replica string, ok bool) {
	replica, ok = strings.CutPrefix(name, ReportLeaseName(fleet, ""))
	return replica, ok && replica != ""
}

// SlotOfLease returns the slot whose Lease has the name; ok is false for any other Lease.
func SlotOfLease(fleet, name string, slots int) (slot int, ok bool) {
	digits, ok := strings.CutPrefix(name, fleet+"-slot-")
	if !ok || len(digits) != slotDigits(slots) {
		return 0, false
	}
	slot, err := strconv.Atoi(digits)
	return slot, err == nil && slot >= 0 && slot < slots
}

func slotDigits(slots int) int {
	if slots > 1000 {
		return 4
	}
	return 3
}

// Identity returns the identity of a session. random is 5 lower-case letters and digits.
func Identity(replica, random string) string { return replica + "_" + random }

// ReplicaOf returns the replica of a session; ok is false for anything that is not the identity of
// a session.
func ReplicaOf(session string) (replica string, ok bool) {
	replica, random, _ := strings.Cut(session, "_")
	isRandom := len(random) == suffixLength && strings.IndexFunc(random, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}) < 0
	return replica, isRandom && isSubdomain(replica)
}

// isSubdomain reports whether a name is a DNS subdomain by RFC 1123, as names of pods are. It is
// called for every holder of every Lease, which is too often for the regular expression of
// apimachinery.
func isSubdomain(name string) bool {
	if len(name) > validation.DNS1123SubdomainMaxLength {
		return false
	}
	before := byte('.')
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case c == '-' && before != '.', c == '.' && before != '.' && before != '-':
		default:
			return false
		}
		before = c
	}
	return before != '.' && before != '-'
}

// Holder returns the Lease's holder, "" if it has none.
func Holder(l *coordinationv1.Lease) string {
	if l == nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// Transitions returns how often the Lease has changed hands: the epoch of a slot.
func Transitions(l *coordinationv1.Lease) int64 {
	if l == nil || l.Spec.LeaseTransitions == nil {
		return 0
	}
	return int64(*l.Spec.LeaseTransitions)
}

// NextTransitions returns the number of transitions that the next holder of a Lease writes: one
// more than there are. It restarts at 1 after the largest number that a Lease can have, and after
// an invalid one. The result differs from the number on the Lease.
func NextTransitions(l *coordinationv1.Lease) int32 {
	n := Transitions(l)
	if n < 0 || n >= math.MaxInt32 {
		return 1
	}
	return int32(n) + 1
}

// IsOlder reports whether one version of a Lease is certainly older than another. Versions that
// cannot be compared are not older.
func IsOlder(l, than *coordinationv1.Lease) bool {
	return objectversion.Compare(l.ResourceVersion, than.ResourceVersion) < 0
}

// Annotate sets an annotation, or removes it if the value is "".
func Annotate(l *coordinationv1.Lease, key, value string) {
	if value == "" {
		delete(l.Annotations, key)
		return
	}
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, key, value)
}

// Untrack has the API server remove its record of which client has written which field from a Lease
// that is about to be written, and keep none from then on: that is what an empty entry means. The
// record is half of the bytes of a renewal, and each replica receives all of them. Only server-side
// apply needs it. The leader Lease keeps it, because people annotate it.
func Untrack(l *coordinationv1.Lease) {
	if len(l.ManagedFields) > 0 {
		l.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	}
}

// Label sets the labels that the fleet's Leases of a kind carry.
func Label(l *coordinationv1.Lease, fleet, kind string) {
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	l.Labels[v1alpha1.LabelFleet], l.Labels[v1alpha1.LabelLease] = fleet, kind
}
