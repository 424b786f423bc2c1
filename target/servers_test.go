package target

import (
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/target/reach"
)

// What is known of one target cluster's API server has no effect on another one; what is known of the control cluster's has one on all.
func TestServersOfATargetCluster(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	away := func() reach.Fact { return reach.Fact{Away: true, From: now} }
	there := func() reach.Fact { return reach.Fact{Reached: now} }
	for name, tc := range map[string]struct {
		servers Servers
		cluster *Cluster
		want    bool
	}{
		"nothing is checked":           {Servers{}, &Cluster{}, false},
		"there is no target cluster":   {Servers{Control: there}, nil, false},
		"both are there":               {Servers{Control: there}, &Cluster{Reach: there}, false},
		"the target cluster's is away": {Servers{Control: there}, &Cluster{Reach: away}, true},
		"the control cluster's is":     {Servers{Control: away}, &Cluster{Reach: there}, true},
		"that is all there is":         {Servers{Control: away}, nil, true},
	} {
		if got := tc.servers.Under(tc.cluster).Away; got != tc.want {
			t.Errorf("%s: away %v, want %v", name, got, tc.want)
		}
	}
}
