package disruption

import (
	"cmp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// Zone returns the name of a zone; "" for an invalid one, since zones are values of a label of
// Nodes. Tenants write zones of any length in MachineClasses, and they are reported on Leases.
func Zone(text string) string {
	if len(validation.IsValidLabelValue(text)) > 0 {
		return ""
	}
	return text
}

// Scope is a zone of a target cluster, or, without a zone, all of the cluster. Zones of two
// clusters are unrelated, also if they have the same name: with different accounts of a cloud it
// may mean different places.
type Scope struct {
	// Target is the cluster's name; "" is the only one of the fleet.
	Target string
	// Zone of the cluster; "" for a machine whose zone is not known.
	Zone string
	// Namespace is set for the machines of one namespace only.
	Namespace string
}

// String returns the scope as text for Events and conditions.
func (s Scope) String() string {
	text := "the target cluster"
	if s.Target != "" {
		text += " " + s.Target
	}
	if s.Zone != "" {
		text = "zone " + s.Zone + " of " + text
	}
	if s.Namespace != "" {
		text += " in namespace " + s.Namespace
	}
	return text
}

// compare orders scopes, a cluster before its zones.
func (s Scope) compare(other Scope) int {
	return cmp.Or(strings.Compare(s.Target, other.Target), strings.Compare(s.Zone, other.Zone), strings.Compare(s.Namespace, other.Namespace))
}

// cluster returns the scope of the whole cluster.
func (s Scope) cluster() Scope { return Scope{Target: s.Target} }

// in returns the part of the scope in a namespace; with "" all of it.
func (s Scope) in(namespace string) Scope {
	s.Namespace = namespace
	return s
}

// Count counts machines that have been healthy Nodes: those that still are and those that are not.
type Count struct{ Ready, NotReady int }

// Add adds another count.
func (c Count) Add(other Count) Count {
	return Count{Ready: c.Ready + other.Ready, NotReady: c.NotReady + other.NotReady}
}

// Tally counts the machines of a scope in all namespaces.
type Tally struct {
	Count

	// Unready is the number of machines that are not Ready by namespace, as far as it was reported.
	Unready map[string]int
	// All is the number of machines by namespace, as far as this process knows: replicas report it
	// only for machines that are not Ready. Sums do not have it.
	All map[string]int
}

// with returns the sum of the tally and another one.
func (t Tally) with(other Tally) Tally {
	sum := Tally{Count: t.Add(other.Count), Unready: map[string]int{}}
	for _, unready := range []map[string]int{t.Unready, other.Unready} {
		for namespace, n := range unready {
			sum.Unready[namespace] += n
		}
	}
	return sum
}

// rankedTally is a tally with the two namespaces that have the most machines that are not Ready; ""
// where there is none. They are found once for the thresholds of all.
type rankedTally struct {
	Tally

	first, second string
}

// rank ranks the namespaces of each tally. Of those with as many, the first by name comes first, in
// every process.
func rank(total map[Scope]Tally) map[Scope]rankedTally {
	all := make(map[Scope]rankedTally, len(total))
	for scope, tally := range total {
		r := rankedTally{Tally: tally}
		worse := func(a, b string) bool {
			return tally.Unready[a] > tally.Unready[b] || tally.Unready[a] == tally.Unready[b] && a < b
		}
		for namespace := range tally.Unready {
			switch { // each namespace with such machines is worse than "", which means none and has 0 of them
			case worse(namespace, r.first):
				r.first, r.second = namespace, r.first
			case worse(namespace, r.second):
				r.second = namespace
			}
		}
		all[scope] = r
	}
	return all
}

// worst returns the namespace with the most machines that are not Ready, excluding one namespace;
// "" if there is none.
func (r rankedTally) worst(except string) string {
	if r.first == except {
		return r.second
	}
	return r.first
}

// evidence returns the count that decides on the circuit breaker for the machines of a namespace
// or, with "", of any namespace. The machines that are not Ready in one other namespace, the one
// that has most of them, do not count: no tenant can open a circuit breaker in the namespaces of
// others with its own machines.
func (r rankedTally) evidence(namespace string) Count {
	n := r.Count
	n.NotReady = max(n.NotReady-r.Unready[r.worst(namespace)], 0)
	return n
}

// Of counts one machine. One that is being deleted, is updated in place, or has failed and is
// preserved, does not count. One that was never healthy is no evidence about its scope. One whose
// update in place has failed is not Ready: an update that fails everywhere must not cause the
// replacement of all machines.
//
// hasNode reports whether a Node is bound to the machine. Any author of Machines can write a phase,
// and a Ready machine counts against opening a circuit breaker in all namespaces, so without a Node
// it does not count. One that is not Ready counts without a Node, too: it may have lost the Node
// with its VM, and the machines of one namespace open no circuit breaker for others.
func Of(m *v1alpha1.Machine, hasNode bool, now time.Time) Count {
	switch {
	case m.DeletionTimestamp != nil:
		return Count{}
	case machinefacts.IsReady(m) && hasNode:
		return Count{Ready: 1}
	case machinefacts.IsUnhealthy(m), machinefacts.HasFailedHealth(m) && !machinefacts.IsPreserved(m, now):
		return Count{NotReady: 1}
	}
	return Count{}
}
