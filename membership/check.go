package membership

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// listed is how many names a problem lists.
const listed = 5

// Expected is the fleet as it should be.
type Expected struct {
	Fleet string
	// Slots is the number of slots, and Replicas the lowest number of replicas.
	Slots, Replicas int
}

// CheckAfter returns how long to wait between the two lists: a session that works has renewed its
// Lease after that. It is the longest fence that one of the Leases records; the default if none
// records any.
func CheckAfter(leases []coordinationv1.Lease) time.Duration {
	var longest time.Duration
	for i := range leases {
		if d, err := time.ParseDuration(leases[i].Annotations[v1alpha1.AnnotationFence]); err == nil {
			longest = max(longest, d)
		}
	}
	if longest <= 0 {
		return DefaultConfig().Fence
	}
	return longest
}

// Problems returns what differs from the expected fleet, each as a sentence; nil if it works: a
// leader and enough sessions live and are fit, and each slot has a holder that lives. before and
// now are all Leases of the fleet, listed at two times. A session lives if it has renewed its Lease
// in between. Nothing else is accepted as evidence: the clock that wrote the time on a Lease is not
// that of the reader.
//
// Not guaranteed: that the objects of each slot are reconciled. /readyz and the metrics of a
// replica report what it waits for.
func Problems(want Expected, before, now []coordinationv1.Lease) (problems []string) {
	versions, leases := map[string]string{}, map[string]*coordinationv1.Lease{}
	for i := range before {
		versions[before[i].Name] = before[i].ResourceVersion
	}
	alive := map[string]bool{}
	for i := range now {
		lease := &now[i]
		leases[lease.Name] = lease
		if _, isSession := ReplicaOfLease(want.Fleet, lease.Name); !isSession || Holder(lease) == "" {
			continue
		}
		if versions[lease.Name] == lease.ResourceVersion {
			problems = append(problems, fmt.Sprintf("session %s does not renew its Lease %s", Holder(lease), lease.Name))
			continue
		}
		alive[Holder(lease)] = true
		if fitness, err := ParseFitness(lease.Annotations[v1alpha1.AnnotationFitness]); !fitness.IsFit() || err != nil {
			problems = append(problems, fmt.Sprintf("session %s is unfit: %s", Holder(lease), fitness.Reason))
		}
	}
	if len(alive) < want.Replicas {
		problems = append(problems,
			fmt.Sprintf("expected sessions of at least %d replicas that renew their Leases, got %d", want.Replicas, len(alive)))
	}
	name := LeaderLeaseName(want.Fleet)
	if leader := leases[name]; !alive[Holder(leader)] || versions[name] == leader.ResourceVersion {
		problems = append(problems, fmt.Sprintf("no session that lives renews the leader Lease %s", name))
	}
	return append(problems, unowned(want, leases, alive)...)
}

// unowned returns the problem of slots without a holder that lives.
func unowned(want Expected, leases map[string]*coordinationv1.Lease, alive map[string]bool) []string {
	var names []string
	for slot := range want.Slots {
		if name := SlotLeaseName(want.Fleet, slot, want.Slots); !alive[Holder(leases[name])] {
			names = append(names, name)
		}
	}
	if names == nil {
		return nil
	}
	problem := fmt.Sprintf("%d of %d slots have no holder that lives: %s",
		len(names), want.Slots, strings.Join(names[:min(listed, len(names))], ", "))
	if len(names) > listed {
		problem += ", …"
	}
	return []string{problem}
}
