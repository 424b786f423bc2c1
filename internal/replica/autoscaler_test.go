package replica

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/externalgrpc"
)

// TestAutoscalers runs whole replicas, behind one Service, with doubles of upstream's
// cluster-autoscaler. In each scenario no loop of an autoscaler ends with an error, and no change
// is refused.
func TestAutoscalers(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(s *autoscaled){
		"from zero for a zone":                   (*autoscaled).fromZero,
		"a burst":                                (*autoscaled).burst,
		"no quota: another group":                (*autoscaled).noQuotaInOne,
		"5 of 50 are deleted":                    (*autoscaled).fiveOfFifty,
		"one group grows while another shrinks":  (*autoscaled).upAndDown,
		"a rollout":                              (*autoscaled).rollout,
		"two namespaces":                         (*autoscaled).twoNamespaces,
		"machines that do not join are given up": (*autoscaled).neverJoins,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newAutoscaled(t)
				defer s.end()
				run(s)
				for _, err := range s.errs {
					t.Errorf("a loop has ended: %v", err)
				}
				for _, call := range s.changes() {
					if call.Err != nil {
						t.Errorf("%s of %s: %v", call.Method, call.Group, call.Err)
					}
				}
			})
		})
	}
}

// begin starts two replicas, and the autoscaler of a namespace when they work.
func (s *autoscaled) begin(namespace string) *scaler {
	s.Helper()
	s.start("fleet-0")
	s.start("fleet-1")
	s.becomes("slots are held", func() bool { return s.unowned() == 0 })
	return s.autoscale(namespace)
}

// bound waits until all pods have Nodes, and there are no more machines than in sizes, by pool.
func (s *autoscaled) bound(what string, sizes map[string]int) {
	s.Helper()
	s.becomes(what, func() bool { return s.pending() == 0 && maps.Equal(s.sizes(), sizes) })
}

func (s *autoscaled) fromZero() {
	s.pool("a", "zone-a", 0, 0, 10)
	s.pool("a", "zone-b", 0, 0, 10)
	a := s.begin("a")
	s.load(3, map[string]string{labelZone: "zone-b", labelPool: "a.zone-b"})
	s.bound("3 pods have Nodes in their zone", map[string]int{"a/zone-b": 3})
	s.lasts(5 * time.Minute)
	if calls := a.Calls("IncreaseSize"); len(calls) != 1 {
		s.Errorf("calls %v, want one for 3 pods", calls)
	}
	s.pods = nil
	s.bound("it is empty again", map[string]int{})
}

func (s *autoscaled) burst() {
	s.pool("a", "zone-a", 0, 0, 250)
	a := s.begin("a")
	pods := 200
	if testing.Short() {
		pods = 50
	}
	s.load(pods, nil)
	s.bound("all pods have Nodes", map[string]int{"a/zone-a": pods})
	if calls := a.Calls("IncreaseSize"); len(calls) != 1 {
		s.Errorf("calls %v, want one for all pods", calls)
	}
}

// noQuotaInOne: the group that cannot grow gets its former size at once, is not tried for some
// time, and another one grows instead.
func (s *autoscaled) noQuotaInOne() {
	s.pool("a", "zone-a", 0, 0, 10)
	s.pool("a", "zone-b", 0, 0, 10)
	s.noQuota["zone-a"] = true
	a := s.begin("a")
	s.load(4, nil)
	s.bound("the pods have Nodes in the other zone", map[string]int{"a/zone-b": 4})
	if !a.IsBackedOff("zone-a") || a.IsBackedOff("zone-b") {
		s.Error("the group without quota is tried again")
	}
	s.noQuota["zone-a"] = false
	s.lasts(6 * time.Minute)
	s.load(2, map[string]string{labelZone: "zone-a"})
	s.bound("the zone grows when it has quota", map[string]int{"a/zone-a": 2, "a/zone-b": 4})
}

func (s *autoscaled) fiveOfFifty() {
	s.pool("a", "zone-a", 50, 0, 60)
	s.load(50, nil)
	a := s.begin("a")
	s.bound("50 pods have Nodes", map[string]int{"a/zone-a": 50})
	want := s.machines("a", "zone-a")
	for _, name := range slices.Sorted(maps.Keys(want))[20:25] {
		s.unload(name)
		delete(want, name)
	}
	s.bound("5 machines are gone", map[string]int{"a/zone-a": 45})
	s.lasts(5 * time.Minute)
	s.only("zone-a", want)
	if calls := a.Calls("DeleteNodes"); len(calls) != 1 {
		s.Errorf("calls %v, want one for 5 Nodes", calls)
	}
}

// only expects exactly these machines of a pool of namespace a.
func (s *autoscaled) only(pool string, want map[string]types.UID) {
	s.Helper()
	if got := s.machines("a", pool); !maps.Equal(got, want) {
		s.Errorf("machines of %s: %v, want %v", pool, got, want)
	}
}

func (s *autoscaled) upAndDown() {
	s.pool("a", "zone-a", 10, 0, 20)
	s.pool("a", "zone-b", 0, 0, 20)
	s.load(10, map[string]string{labelZone: "zone-a"})
	a := s.begin("a")
	a.AfterAdd = 0
	s.bound("10 pods have Nodes", map[string]int{"a/zone-a": 10})
	want := s.machines("a", "zone-a")
	for _, name := range slices.Sorted(maps.Keys(want))[3:6] {
		s.unload(name)
		delete(want, name)
		s.load(2, map[string]string{labelZone: "zone-b"})
		s.lasts(15 * time.Second)
	}
	s.bound("one has grown by 6, and the other has shrunk by 3", map[string]int{"a/zone-a": 7, "a/zone-b": 6})
	s.lasts(2 * time.Minute)
	s.only("zone-a", want)
}

// rollout: the group grows while its machines are replaced, and shrinks only afterwards.
func (s *autoscaled) rollout() {
	s.pool("a", "zone-a", 6, 0, 20)
	s.load(6, nil)
	a := s.begin("a")
	s.bound("6 pods have Nodes", map[string]int{"a/zone-a": 6})
	s.relabelTemplate("a", "zone-a", "2")
	s.becomes("machines are replaced", func() bool { return s.ofVersion("2") > 0 })
	s.load(2, nil)
	s.pods = s.pods[3:]
	s.becomes("all machines are replaced", func() bool {
		rolling := s.ofVersion("2") != len(s.machinesOf("zone-a"))
		if calls := a.Calls("DeleteNodes"); rolling && len(calls) > 0 {
			s.Fatalf("Nodes are deleted during the rollout: %v", calls)
		}
		return !rolling
	})
	s.bound("5 pods have Nodes, and no Node is without", map[string]int{"a/zone-a": 5})
}

// twoNamespaces: with groups of the same names, in one target cluster.
func (s *autoscaled) twoNamespaces() {
	for _, namespace := range []string{"a", "b"} {
		s.pool(namespace, "zone-a", 1, 1, 10)
	}
	s.begin("a")
	s.autoscale("b")
	s.load(2, map[string]string{labelPool: "a.zone-a"})
	s.load(5, map[string]string{labelPool: "b.zone-a"})
	s.bound("each scales for the pods that fit its Nodes", map[string]int{"a/zone-a": 2, "b/zone-a": 5})
	s.pods = nil
	s.bound("both shrink to their minimum", map[string]int{"a/zone-a": 1, "b/zone-a": 1})
}

// neverJoins: VMs that do not become Nodes in time are deleted, and the group keeps its minimum.
func (s *autoscaled) neverJoins() {
	s.pool("a", "zone-a", 2, 2, 10)
	a := s.begin("a")
	s.becomes("2 machines run", func() bool { return s.runningOf("zone-a") == 2 })
	want := s.machines("a", "zone-a")
	s.never = true
	s.load(5, nil)
	s.becomes("3 more are created", func() bool { return s.sizes()["a/zone-a"] == 5 })
	s.becomes("they are given up", func() bool { return a.IsBackedOff("zone-a") && s.sizes()["a/zone-a"] == 2 })
	s.only("zone-a", want)
	if m := s.machinesOf("zone-a"); m[0].Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
		s.Errorf("machine %s does not run", m[0].Name)
	}
}

// TestPodsOfANewNode: each replica answers with what the KubeletConfig of the pool of a
// MachineDeployment sets.
func TestPodsOfANewNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newAutoscaled(t, func(o *Options) { o.Configs.Enabled = true })
		defer s.end()
		s.pool("a", "d1", 0, 0, 10)
		s.pool("a", "other", 0, 0, 10)
		s.putPools("one")
		s.start("fleet-0")
		s.start("fleet-1")
		s.becomes("slots are held", func() bool { return s.unowned() == 0 })
		for range 2 { // connections lead to one replica after the other
			c := s.connect("a")
			for id, want := range map[string]int64{"d1": 50, "other": 110} {
				answer, err := c.NodeGroupTemplateNodeInfo(t.Context(), &externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: id})
				var node corev1.Node
				if err == nil {
					err = node.Unmarshal(answer.GetNodeBytes())
				}
				if got := node.Status.Capacity.Pods().Value(); err != nil || got != want {
					t.Errorf("%s: %d pods, %v; want %d", id, got, err, want)
				}
			}
		}
	})
}
