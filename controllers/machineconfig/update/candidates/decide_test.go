package candidates

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/scenario"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestAssign(t *testing.T) {
	scenario.Run(t, "testdata/assign.txt", func(t *testing.T, s scenario.Scenario) string {
		v := Decide(read(t, s))
		var lines []string
		add := func(what string, names []string, always bool) {
			if len(names) == 0 && always {
				names = []string{"nothing"}
			}
			if len(names) > 0 {
				lines = append(lines, what+" "+strings.Join(names, " "))
			}
		}
		var assigned []string
		for _, a := range v.Assign {
			name := a.Node.Name
			if a.Counted {
				name += "*"
			}
			if a.Config != "b" {
				t.Errorf("%s is assigned %q", name, a.Config)
			}
			assigned = append(assigned, name)
		}
		add("assign", assigned, true)
		add("taint", v.Taint, false)
		add("untaint", v.Untaint, false)
		return strings.Join(lines, "\n")
	})
}

func TestStatus(t *testing.T) {
	scenario.Run(t, "testdata/status.txt", func(t *testing.T, s scenario.Scenario) string {
		got := Decide(read(t, s)).Status
		lines := []string{fmt.Sprintf("machines %d, updated %d, ready %d, unavailable %d, degraded %d; completed %s",
			got.MachineCount, got.UpdatedMachineCount, got.ReadyMachineCount, got.UnavailableMachineCount,
			got.DegradedMachineCount, got.CompletedMachineConfig)}
		for _, c := range got.Conditions {
			lines = append(lines, fmt.Sprintf("%s %s/%s: %s", c.Type, c.Status, c.Reason, c.Message))
			if c.LastTransitionTime.Time != start || c.ObservedGeneration != 3 {
				t.Errorf("%s has time %v and generation %d", c.Type, c.LastTransitionTime, c.ObservedGeneration)
			}
		}
		return strings.Join(lines, "\n")
	})
}

// read returns the world of a scenario. The last pool replaces those before it.
func read(t *testing.T, s scenario.Scenario) World {
	t.Helper()
	w := World{Now: start, Live: true, Prefix: v1alpha1.DaemonPrefix, Leaving: map[string]bool{}, Held: map[string]bool{}}
	for _, fact := range s.Given {
		words := strings.Fields(fact.Value)
		switch fact.Key {
		case "pool":
			w.Pool = &v1alpha1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 3}}
			for _, word := range words {
				key, value, _ := strings.Cut(word, "=")
				setPool(t, &w, key, value)
			}
		case "node":
			w.Nodes = append(w.Nodes, node(t, words))
		default:
			t.Fatalf("line %d: %s", fact.Line, fact.Key)
		}
	}
	slices.Reverse(w.Nodes)
	return w
}

func setPool(t *testing.T, w *World, key, value string) {
	t.Helper()
	set := func(names map[string]bool) {
		for name := range strings.SplitSeq(value, ",") {
			names[name] = true
		}
	}
	switch key {
	case "target":
		w.Pool.Status.CurrentMachineConfig = value
	case "completed":
		w.Pool.Status.CompletedMachineConfig = value
	case "abandoned":
		w.Pool.Status.AbandonedMachineConfigs = strings.Split(value, ",")
	case "max":
		most := intstr.Parse(value)
		if unquoted, err := strconv.Unquote(value); err == nil {
			most = intstr.FromString(unquoted)
		}
		w.Pool.Spec.MaxUnavailable = &most
	case "absent":
		w.Absent, _ = strconv.Atoi(value)
	case "leaving":
		set(w.Leaving)
	case "held":
		set(w.Held)
	case "conflicts":
		w.Conflicts = strings.Split(value, ",")
	case "paused":
		w.Pool.Spec.Paused = true
	case "rollout":
		w.Pool.Spec.Rollout = v1alpha1.RolloutType(value)
	case "rendering":
		w.Pool.Status.Conditions = []metav1.Condition{
			{Type: v1alpha1.PoolRenderDegraded, Status: metav1.ConditionTrue, Message: "MachineConfig x is invalid."},
		}
	default:
		t.Fatalf("pool: %s", key)
	}
}

func node(t *testing.T, words []string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: words[0], Labels: map[string]string{}, CreationTimestamp: metav1.NewTime(start)}}
	values := map[string]string{"current": "a", "desired": "a", "state": "done", "reason": "", "ready": "True"}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "current", "desired", "state", "reason":
			values[key] = value
		case "ready":
			values[key] = strings.ToUpper(value[:1]) + value[1:]
		case "zone":
			n.Labels["topology.kubernetes.io/zone"] = value
		case "age":
			age, err := time.ParseDuration(value)
			if err != nil {
				t.Fatal(err)
			}
			n.CreationTimestamp = metav1.NewTime(start.Add(-age))
		case "cordoned":
			n.Spec.Unschedulable = true
		case "tainted":
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "UpdateInProgress", Effect: corev1.TaintEffectPreferNoSchedule})
		case "pressure":
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue})
		default:
			t.Fatalf("node: %s", key)
		}
	}
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionStatus(values["ready"]),
	})
	n.Annotations = map[string]string{
		"machine-config-daemon.v1.openshift.com/currentConfig": values["current"],
		"machine-config-daemon.v1.openshift.com/desiredConfig": values["desired"],
		"machine-config-daemon.v1.openshift.com/state":         values["state"],
		"machine-config-daemon.v1.openshift.com/reason":        values["reason"],
	}
	return n
}

// The cache may be old: Nodes are assigned only as the API server has them.
func TestDecideFromCacheRequestsLiveNodes(t *testing.T) {
	w := World{Now: start, Prefix: v1alpha1.DaemonPrefix, Pool: &v1alpha1.MachineConfigPool{}, Nodes: []*corev1.Node{node(t, []string{"n1"})}}
	w.Pool.Status.CurrentMachineConfig = "b"
	if v := Decide(w); !v.ListLive || v.Assign != nil || v.Taint != nil || v.Status.Conditions != nil {
		t.Errorf("want only a request for live Nodes, got %+v", v)
	}
	w.Live = true
	if v := Decide(w); v.ListLive || len(v.Assign) != 1 {
		t.Errorf("live: %+v", v)
	}
	w.Live, w.Pool.Spec.Paused = false, true
	if v := Decide(w); v.ListLive || v.Status.Conditions == nil {
		t.Errorf("nothing to assign: %+v", v)
	}
}

// The prefix is a setting; annotations of others are not read.
func TestAnnotationsOfOtherPrefixesAreNotRead(t *testing.T) {
	w := World{
		Now: start, Live: true, Prefix: "example.com", Pool: &v1alpha1.MachineConfigPool{}, Nodes: []*corev1.Node{node(t, []string{"n1"})},
	}
	w.Pool.Status.CurrentMachineConfig = "b"
	if v := Decide(w); len(v.Assign) != 0 {
		t.Errorf("assigned %v", v.Assign)
	}
	w.Nodes[0].Annotations["example.com/currentConfig"] = "a"
	if v := Decide(w); len(v.Assign) != 1 {
		t.Errorf("assigned %v", v.Assign)
	}
}

// The time of a condition is that of its last change of status.
func TestStatusConditionKeepsTime(t *testing.T) {
	w := World{
		Now: start, Live: true, Prefix: v1alpha1.DaemonPrefix, Pool: &v1alpha1.MachineConfigPool{},
		Nodes: []*corev1.Node{node(t, []string{"n1"})},
	}
	w.Pool.Status.CurrentMachineConfig = "b"
	w.Pool.Status = Decide(w).Status
	w.Now = start.Add(time.Hour)
	w.Nodes = append(w.Nodes, node(t, []string{"n2", "state=degraded"}))
	for _, c := range Decide(w).Status.Conditions {
		changed := c.Type == v1alpha1.PoolNodeDegraded || c.Type == v1alpha1.PoolDegraded
		if got := c.LastTransitionTime.Time.Equal(w.Now); got != changed {
			t.Errorf("%s=%s has the time of now: %t, want %t", c.Type, c.Status, got, changed)
		}
	}
}

func TestMessageOfLongReasonsIsBounded(t *testing.T) {
	w := World{Now: start, Live: true, Prefix: v1alpha1.DaemonPrefix, Pool: &v1alpha1.MachineConfigPool{}}
	w.Pool.Status.CurrentMachineConfig = "b"
	for i := range 100 {
		n := node(t, []string{fmt.Sprint(strings.Repeat("n", 250), i), "state=degraded"})
		n.Annotations[w.Prefix.Reason()] = strings.Repeat("ä", 100_000)
		w.Nodes = append(w.Nodes, n)
	}
	for _, c := range Decide(w).Status.Conditions {
		if len(c.Message) > 1024 {
			t.Errorf("%s has a message of %d bytes", c.Type, len(c.Message))
		}
	}
}

func TestMembers(t *testing.T) {
	pool := func(name string, priority int32, labels map[string]string, age time.Duration) *v1alpha1.MachineConfigPool {
		p := &v1alpha1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(start.Add(-age))}}
		p.Spec.Priority = priority
		if labels == nil {
			p.Spec.MachineRef = &v1alpha1.MachineReference{Kind: "MachineDeployment", Namespace: "n", Name: "d"}
			return p
		}
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: labels}
		return p
	}
	pools := []*v1alpha1.MachineConfigPool{
		pool("worker", 0, map[string]string{"worker": ""}, 0),
		pool("infra", 1, map[string]string{"infra": ""}, 0),
		pool("gpu", 1, map[string]string{"gpu": ""}, 0),
		pool("all", 9, map[string]string{}, 0), // selects none
		pool("ref-young", 0, nil, time.Hour),
		pool("ref-old", 0, nil, 2*time.Hour),
	}
	var nodes []*corev1.Node
	for name, labels := range map[string]string{
		"n1": "worker", "n2": "worker infra", "n3": "worker infra gpu", "n4": "other", "n5": "worker", "n6": "worker", "n7": "worker",
		"n0": "worker",
	} {
		n := node(t, []string{name})
		for label := range strings.FieldsSeq(labels) {
			n.Labels[label] = ""
		}
		if name == "n5" {
			n.Labels["kubernetes.io/os"] = "windows"
		}
		nodes = append(nodes, n)
	}
	got := Members(pools, nodes, map[string][]string{"n6": {"ref-young"}, "n7": {"ref-old", "ref-young"}})
	of := map[string]string{}
	for pool, members := range got.Of {
		for _, n := range members {
			of[pool] += n.Name + " "
		}
	}
	if diff := cmp.Diff(map[string]string{"worker": "n0 n1 ", "infra": "n2 ", "ref-old": "n7 ", "ref-young": "n6 "}, of); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string][]string{"infra": {"n3"}, "gpu": {"n3"}, "ref-young": {"n7"}}, got.Conflicts); diff != "" {
		t.Errorf("conflicts (-want +got):\n%s", diff)
	}
}
