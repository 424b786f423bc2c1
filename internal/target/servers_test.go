package target

import (
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

// What is known of one target cluster's API server has no effect on another one; what is known of
// the control cluster's has one on all.
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

// A time without a replica counts like an outage of the API servers, of which the last one counts.
func TestServersAfterATimeWithoutAReplica(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	unserved := func() reach.Fact { return reach.Fact{From: start, Back: start.Add(3 * time.Hour)} }
	there := func() reach.Fact { return reach.Fact{Reached: start.Add(3 * time.Hour)} }
	is := Servers{Control: there, Unserved: unserved}.Under(nil)
	since := start.Add(-5 * time.Minute)
	if got, want := is.Extend(since, since.Add(time.Hour)), since.Add(4*time.Hour); !got.Equal(want) || is.Reached != there().Reached {
		t.Errorf("a deadline that includes it is %s, want %s; reached %s", got, want, is.Reached)
	}
	outage := func() reach.Fact { return reach.Fact{From: start.Add(4 * time.Hour), Back: start.Add(5 * time.Hour)} }
	if got := (Servers{Control: outage, Unserved: unserved}).Under(nil); got != outage() {
		t.Errorf("after a later outage: %+v", got)
	}
	away := func() reach.Fact { return reach.Fact{Away: true, From: start.Add(4 * time.Hour)} }
	if got := (Servers{Control: away, Unserved: unserved}).Under(nil); !got.Away {
		t.Errorf("while a server is away: %+v", got)
	}
}
