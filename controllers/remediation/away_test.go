package remediation

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
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
		if c := b.deployment().Status.Conditions; len(c) != 1 || c[0].Type != v1alpha1.MachineDeploymentAPIServerAway ||
			c[0].Status != corev1.ConditionTrue {
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
		if want := []string{
			"alone Normal APIServerBack", "alone Warning APIServerAway", "d Normal APIServerBack", "d Warning APIServerAway",
		}; !slices.Equal(events, want) {
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

// ofNamespaces are the target clusters of namespaces; those of others are not available.
type ofNamespaces struct {
	target.None

	clusters *sync.Map // *target.Cluster by namespace, or an error
}

func (o ofNamespaces) For(namespace string) (*target.Cluster, error) {
	is, _ := o.clusters.Load(namespace)
	switch is := is.(type) {
	case *target.Cluster:
		return is, nil
	case error:
		return nil, is
	}
	return nil, &target.UnavailableError{Namespace: namespace}
}

// Machines of a target cluster that is being connected to, as after a hand-over, count as they
// were: few that are not Ready open no circuit breaker of all.
func TestMachinesOfAPendingTargetClusterCount(t *testing.T) {
	during(t, []runtime.Object{deployment()}, func(b *bench) {
		clusters := ofNamespaces{clusters: &sync.Map{}}
		b.tree.targets = clusters
		s := set("s", deployment(), 6)
		s.Namespace = "there"
		b.feed(s)
		for i := range 6 {
			m := machine(s, i, v1alpha1.MachineRunning, time.Now())
			if m.Namespace = "there"; i < 2 {
				m.Status.CurrentStatus.Phase = v1alpha1.MachineUnknown
			}
			b.feed(m)
		}
		for isPending, ready := range map[bool]int{true: 4, false: 0} {
			clusters.clusters.Store("there", &target.UnavailableError{Namespace: "there", Pending: isPending})
			want := disruption.Counts{}
			want.Add(disruption.Scope{Target: "there"}, "there", disruption.Count{NotReady: 2, Ready: ready})
			if diff := cmp.Diff(disruption.Own{0: want}, b.breakers.own(1)); diff != "" {
				t.Errorf("is being connected to: %t (-want +got):\n%s", isPending, diff)
			}
		}
	})
}

// Zones of the same name, in clusters of several namespaces whose Nodes have the same names, are
// counted apart: also those of clusters that are not available.
func TestTargetClustersAreCountedApart(t *testing.T) {
	d := deployment()
	during(t, []runtime.Object{d}, func(b *bench) {
		clusters := ofNamespaces{clusters: &sync.Map{}}
		b.tree.targets, b.deployments.cfg.Targets = clusters, clusters
		want := disruption.Counts{}
		put := func(namespace string, phase v1alpha1.MachinePhase, available bool, count disruption.Count) {
			cluster, c, s := target.New(nil), class(), set("s", d, 6)
			cluster.Name, c.Namespace, s.Namespace = namespace, namespace, namespace
			b.feed(c)
			b.feed(s)
			if available {
				clusters.clusters.Store(namespace, cluster)
			}
			for i := range 6 {
				m := machine(s, i, phase, time.Now().Add(-time.Hour))
				m.Namespace = namespace
				cluster.Nodes.Apply(nodeOf(m), false)
				b.feed(m)
			}
			want.Add(disruption.Scope{Target: namespace, Zone: "z1"}, namespace, count)
		}
		put("dark", v1alpha1.MachineUnknown, true, disruption.Count{NotReady: 6})
		put("well", v1alpha1.MachineRunning, true, disruption.Count{Ready: 6})
		put("also-well", v1alpha1.MachineRunning, true, disruption.Count{Ready: 6})
		put("away", v1alpha1.MachineUnknown, false, disruption.Count{NotReady: 6})
		put("away-too", v1alpha1.MachineUnknown, false, disruption.Count{NotReady: 6})
		if diff := cmp.Diff(disruption.Own{0: want}, b.breakers.own(1)); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		b.Breakers().Receive(nil, []string{"r"})
		b.wait(2 * time.Second)
		open := map[string]bool{}
		for _, of := range b.Breakers().Snapshots().Of {
			for scope := range of.Open {
				open[scope.Target] = true
			}
		}
		if diff := cmp.Diff(map[string]bool{"dark": true, "away": true, "away-too": true}, open); diff != "" {
			t.Errorf("clusters with open circuit breakers (-want +got):\n%s", diff)
		}
	})
}

// A root whose target cluster is not available waits, and has a pass when the cluster is back.
func TestRootWaitsForItsTargetCluster(t *testing.T) {
	d := deployment()
	s := set("s", d, 1)
	during(t, []runtime.Object{d}, func(b *bench) {
		clusters := ofNamespaces{clusters: &sync.Map{}}
		b.tree.targets, b.deployments.cfg.Targets = clusters, clusters
		for _, obj := range []any{class(), d, s} {
			b.feed(obj)
		}
		b.join(machine(s, 0, v1alpha1.MachineUnknown, time.Now()))
		b.Breakers().Receive(nil, []string{"r"})
		b.wait(time.Hour + time.Second)
		if got := disruptions(t, b.deployment()); len(got) > 0 {
			t.Errorf("disruptions for %v without a target cluster", got)
		}
		clusters.clusters.Store("n", b.cluster)
		b.TargetChanged("n")
		b.wait(time.Second)
		if got := disruptions(t, b.deployment()); !slices.Equal(got, []string{"s-0"}) {
			t.Errorf("disruptions for %v when the cluster is back, want s-0", got)
		}
	})
}
