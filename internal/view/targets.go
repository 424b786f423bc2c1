package view

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// Targets are the target clusters of a fleet.
type Targets struct {
	Targets []Target  `json:"targets"`
	Missing []Missing `json:"missing,omitempty"`
}

// Target is a target cluster.
type Target struct {
	// Namespace whose Secret names the cluster; "" for the one target of a fleet without landscapes.
	Namespace string `json:"namespace,omitempty"`
	Server    string `json:"server,omitempty"`
	// Reachable reports whether it has answered this client; nil if it was not asked, as without
	// the right to read the Secret.
	Reachable *bool `json:"reachable,omitempty"`
	// Why it is not available, to this client or to the fleet.
	Why   string `json:"why,omitempty"`
	Level Level  `json:"level,omitempty"`
	// Credentials are a token or a client certificate, and Expires is when they do; zero if they do
	// not, or it is not known.
	Credentials string    `json:"credentials,omitempty"`
	Expires     time.Time `json:"expires,omitzero"`
	Machines    int       `json:"machines"`
	// Nodes of the cluster, and how many of them are Ready; nil if they were not read.
	Nodes *int `json:"nodes,omitempty"`
	Ready *int `json:"ready,omitempty"`
}

// TargetRead has the answers that a client got about a target cluster, and from it.
type TargetRead struct {
	Namespace, Server, Credentials string
	Expires                        time.Time
	// Asked reports whether the cluster was asked. Nodes are its answer, and Err why it has none.
	Asked bool
	Nodes []*corev1.Node
	Err   error
}

// soon is before the expiry of credentials by how much they are a warning.
const soon = 24 * time.Hour

// TargetsOf returns the state of target clusters from what was read of each.
func TargetsOf(s Snapshot, reads []TargetRead) Targets {
	all := Targets{Targets: []Target{}, Missing: s.Missing}
	for _, read := range reads {
		t := Target{Namespace: read.Namespace, Server: read.Server, Credentials: read.Credentials, Expires: read.Expires}
		for _, m := range s.Machines {
			if read.Namespace == "" || m.Namespace == read.Namespace {
				t.Machines++
			}
		}
		t.assess(s, read)
		all.Targets = append(all.Targets, t)
	}
	slices.SortStableFunc(all.Targets, func(a, b Target) int { return a.Level.rank() - b.Level.rank() })
	return all
}

// assess adds what is wrong.
func (t *Target) assess(s Snapshot, read TargetRead) {
	if read.Asked {
		reachable := read.Err == nil
		t.Reachable = &reachable
	}
	if read.Err == nil && read.Asked {
		nodes, ready := len(read.Nodes), 0
		for _, n := range read.Nodes {
			if c := machinefacts.NodeCondition(n, corev1.NodeReady); c != nil && c.Status == corev1.ConditionTrue {
				ready++
			}
		}
		t.Nodes, t.Ready = &nodes, &ready
	}
	of := slices.IndexFunc(s.Deployments, func(d *v1alpha1.MachineDeployment) bool {
		c := machinefacts.ConditionOfDeployment(&d.Status, v1alpha1.MachineDeploymentValid)
		isOf := t.Namespace == "" || d.Namespace == t.Namespace
		return isOf && c.Status == corev1.ConditionFalse && c.Reason == v1alpha1.ReasonTargetUnavailable
	})
	switch {
	case of >= 0:
		c := machinefacts.ConditionOfDeployment(&s.Deployments[of].Status, v1alpha1.MachineDeploymentValid)
		t.Level, t.Why = Error, "the fleet: "+c.Message
	case read.Err != nil:
		t.Level, t.Why = Warning, read.Err.Error()
	case !t.Expires.IsZero() && t.Expires.Before(s.Now):
		t.Level, t.Why = Error, "its credentials have expired"
	case !t.Expires.IsZero() && t.Expires.Sub(s.Now) < soon:
		t.Level, t.Why = Note, "its credentials expire soon"
	}
}
