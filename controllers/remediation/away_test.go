package remediation

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

// knows sets what the process knows of the API server of the target cluster.
func (b *bench) knows() (set func(reach.Fact)) {
	var mu sync.Mutex
	var fact reach.Fact
	b.cluster.Reach = func() reach.Fact {
		mu.Lock()
		defer mu.Unlock()
		return fact
	}
	return func(is reach.Fact) {
		mu.Lock()
		fact = is
		mu.Unlock()
		b.ServerChanged(b.cluster)
		b.wait(time.Second)
	}
}

// While the API server of the target cluster is away its roots have the condition, and no machine
// of them gets a disruption, nor for a minute after that. Each Event is emitted once.
func TestRootsShowThatTheServerIsAway(t *testing.T) {
	d := deployment()
	s, alone := set("s", d, 1), set("alone", nil, 0)
	during(t, []runtime.Object{d, s, alone}, func(b *bench) {
		know := b.knows()
		for _, obj := range []any{class(), d, s, alone} {
			b.feed(obj)
		}
		b.join(machine(s, 0, v1alpha1.MachineUnknown, time.Now()))
		b.Breakers().Receive(nil, []string{"r"})
		b.wait(9 * time.Minute)
		from := time.Now()
		know(reach.Fact{Away: true, From: from})
		b.wait(time.Hour)
		if c := b.deployment().Status.Conditions; len(c) != 1 || c[0].Type != v1alpha1.MachineDeploymentAPIServerAway || c[0].Status != corev1.ConditionTrue {
			t.Errorf("conditions of the MachineDeployment: %+v", c)
		}
		onAlone, _ := b.view.Sets.Get(objectcache.Key(alone))
		if c := onAlone.Status.Conditions; len(c) != 1 || c[0].Type != v1alpha1.MachineSetAPIServerAway || c[0].Status != corev1.ConditionTrue {
			t.Errorf("conditions of the MachineSet without a controller: %+v", c)
		}
		if got := disruptions(t, b.deployment()); len(got) > 0 {
			t.Errorf("disruptions for %v while the server is away", got)
		}
		know(reach.Fact{From: from, Back: time.Now()})
		b.wait(50 * time.Second)
		onAlone, _ = b.view.Sets.Get(objectcache.Key(alone))
		if c := b.deployment().Status.Conditions; len(c)+len(onAlone.Status.Conditions) > 0 {
			t.Errorf("conditions %+v and %+v are left", c, onAlone.Status.Conditions)
		}
		if got := disruptions(t, b.deployment()); len(got) > 0 {
			t.Errorf("disruptions for %v right after the outage", got)
		}
		b.wait(20 * time.Second)
		if got := disruptions(t, b.deployment()); !slices.Equal(got, []string{"s-0"}) {
			t.Errorf("disruptions for %v a minute after the outage, want s-0", got)
		}
		var events []string
		for _, e := range b.events() {
			events = append(events, strings.Split(e, ":")[0])
		}
		slices.Sort(events)
		if want := []string{"alone Normal APIServerBack", "alone Warning APIServerAway", "d Normal APIServerBack", "d Warning APIServerAway"}; !slices.Equal(events, want) {
			t.Errorf("Events %q, want %q", events, want)
		}
	})
}

// twoTargets has a separate target cluster for the namespace "other".
type twoTargets struct {
	target.None

	one, other *target.Cluster
}

func (t twoTargets) For(namespace string) (*target.Cluster, error) {
	if namespace == "other" {
		return t.other, nil
	}
	return t.one, nil
}

// An API server that is away stops nothing in namespaces of another target cluster.
func TestOtherTargetClustersGoOn(t *testing.T) {
	d := deployment()
	s := set("s", d, 1)
	during(t, []runtime.Object{d}, func(b *bench) {
		away := target.New(nil)
		away.Reach = func() reach.Fact { return reach.Fact{Away: true, From: time.Now()} }
		b.deployments.cfg.Targets = twoTargets{one: b.cluster, other: away}
		for _, obj := range []any{class(), d, s} {
			b.feed(obj)
		}
		b.join(machine(s, 0, v1alpha1.MachineUnknown, time.Now()))
		b.Breakers().Receive(nil, []string{"r"})
		b.wait(11 * time.Minute)
		if got := disruptions(t, b.deployment()); !slices.Equal(got, []string{"s-0"}) || len(b.deployment().Status.Conditions) > 0 {
			t.Errorf("disruptions for %v, want s-0; conditions %+v", got, b.deployment().Status.Conditions)
		}
	})
}
