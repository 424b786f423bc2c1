package groups_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/groups"
)

func TestIncrease(t *testing.T) {
	frozen := condition(v1alpha1.MachineDeploymentFrozen, corev1.ConditionTrue, v1alpha1.ReasonFreezeLabel)
	for _, tc := range []struct {
		name  string
		pool  *v1alpha1.MachineDeployment
		delta int32
		want  int32
		code  groups.Code
	}{
		{"by one", deployment("pool", 3, "0 10"), 1, 4, 0},
		{"to the maximum", deployment("pool", 3, "0 10"), 7, 10, 0},
		{"beyond the maximum", deployment("pool", 3, "0 10"), 8, 0, groups.FailedPrecondition},
		{"beyond what 32 bits hold", deployment("pool", 3, "0 10"), math.MaxInt32, 0, groups.FailedPrecondition},
		{"by nothing", deployment("pool", 3, "0 10"), 0, 0, groups.InvalidArgument},
		{"by a negative number", deployment("pool", 3, "0 10"), -1, 0, groups.InvalidArgument},
		{"by the most negative number", deployment("pool", 3, "0 10"), math.MinInt32, 0, groups.InvalidArgument},
		{"frozen", deployment("pool", 3, "0 10", frozen), 1, 0, groups.FailedPrecondition},
		{"in a rollout", deployment("pool", 3, "0 10", rolling), 1, 4, 0},
		{"not a group any more", deployment("pool", 3, ""), 1, 0, groups.NotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := tc.pool.DeepCopy()
			got, err := groups.Increase(groups.Live{Deployment: tc.pool, Now: now}, tc.delta)
			checkCode(t, err, tc.code)
			if diff := cmp.Diff(before, tc.pool); diff != "" {
				t.Errorf("the MachineDeployment that was read has changed:\n%s", diff)
			}
			if err == nil && (got.Spec.Replicas != tc.want || !cmp.Equal(got.Annotations, before.Annotations)) {
				t.Errorf("%d replicas, %v; want %d, and the annotations as before", got.Spec.Replicas, got.Annotations, tc.want)
			}
		})
	}
}

func TestDelete(t *testing.T) {
	paused := condition(v1alpha1.MachineDeploymentProgressing, corev1.ConditionUnknown, v1alpha1.ReasonDeploymentPaused)
	named := func(list string) func(*v1alpha1.MachineDeployment) {
		return func(d *v1alpha1.MachineDeployment) { d.Annotations[v1alpha1.AnnotationTriggerDeletion] = list }
	}
	later := func(d *v1alpha1.MachineDeployment) {
		d.Annotations[v1alpha1.AnnotationLastReplicaChangeByScaler] = "2026-01-02T03:04:09Z"
	}
	gone := func(node groups.Node) groups.Node {
		node.Annotations = map[string]string{v1alpha1.AnnotationMachine: "n/gone/u"}
		return node
	}
	run := v1alpha1.MachineRunning
	machines := []*v1alpha1.Machine{
		machine("a", "pool-set", run), machine("b", "pool-set", run), machine("leaving", "pool-set", run, leaving),
		machine("marked", "pool-set", run, marked), machine("preserved", "pool-set", run, preserved), machine("new", "pool-set", ""),
		machine("pending", "pool-set", v1alpha1.MachinePending), machine("foreign", "other-set", run),
	}
	for _, tc := range []struct {
		name  string
		pool  *v1alpha1.MachineDeployment
		held  string
		off   string
		nodes []groups.Node
		want  string // the list of names; "" for no write
		size  int32
		code  groups.Code
	}{
		{name: "one", nodes: []groups.Node{nodeOf("a")}, want: "a~" + stamp, size: 4},
		{name: "two", nodes: []groups.Node{nodeOf("b"), nodeOf("a")}, want: "b~" + stamp + ",a~" + stamp, size: 3},
		{name: "one, twice", nodes: []groups.Node{nodeOf("a"), nodeOf("a")}, want: "a~" + stamp, size: 4},
		{name: "no VM yet", nodes: []groups.Node{instance("requested://new")}, want: "new~" + stamp, size: 4},
		{name: "no Node yet", nodes: []groups.Node{instance("vm://pending")}, want: "pending~" + stamp, size: 4},
		{name: "named before", pool: deployment("pool", 5, "0 9", named("a~"+stamp)), nodes: []groups.Node{nodeOf("a")}},
		{name: "named before by an older autoscaler", pool: deployment("pool", 5, "0 9", named("x,a")), nodes: []groups.Node{nodeOf("a")}},
		{
			name: "next to one that was named before",
			pool: deployment("pool", 5, "0 9", named("a~x")), nodes: []groups.Node{nodeOf("a"), nodeOf("b")}, want: "a~x,b~" + stamp, size: 4,
		},
		{
			name: "after a clock was set back",
			pool: deployment("pool", 5, "0 9", later), nodes: []groups.Node{nodeOf("a")}, want: "a~2026-01-02T03:04:09Z", size: 4,
		},
		{name: "being deleted", nodes: []groups.Node{nodeOf("leaving")}},
		{name: "marked", nodes: []groups.Node{nodeOf("marked")}},
		{name: "gone, bound to a machine of the namespace", nodes: []groups.Node{gone(nodeOf("gone"))}},
		{name: "gone, without a VM", nodes: []groups.Node{instance("requested://gone")}},
		{name: "one that is gone, and another one", nodes: []groups.Node{instance("requested://gone"), nodeOf("a")}, want: "a~" + stamp, size: 4},
		{name: "no Node", nodes: nil},
		{name: "unknown", nodes: []groups.Node{nodeOf("a"), nodeOf("unknown")}, code: groups.NotFound},
		{name: "of another group", nodes: []groups.Node{nodeOf("a"), nodeOf("foreign")}, code: groups.InvalidArgument},
		{name: "preserved", nodes: []groups.Node{nodeOf("a"), nodeOf("preserved")}, code: groups.FailedPrecondition},
		{name: "a machine that runs, as an instance without a Node", nodes: []groups.Node{instance("vm://a")}, code: groups.FailedPrecondition},
		{
			name:  "a machine that runs, as an instance without a VM",
			nodes: []groups.Node{instance("requested://a")}, code: groups.FailedPrecondition,
		},
		{
			name: "below the minimum",
			pool: deployment("pool", 5, "4 9"), nodes: []groups.Node{nodeOf("a"), nodeOf("b")}, code: groups.FailedPrecondition,
		},
		{name: "to the minimum", pool: deployment("pool", 5, "4 9"), nodes: []groups.Node{nodeOf("a")}, want: "a~" + stamp, size: 4},
		{name: "in a rollout", pool: deployment("pool", 5, "0 9", rolling), nodes: []groups.Node{nodeOf("a")}, code: groups.FailedPrecondition},
		{name: "again, in a rollout", pool: deployment("pool", 5, "0 9", rolling), nodes: []groups.Node{nodeOf("leaving")}},
		{
			name: "in a rollout that is paused",
			pool: deployment("pool", 5, "0 9", paused), nodes: []groups.Node{nodeOf("a")}, want: "a~" + stamp, size: 4,
		},
		{name: "held", held: "an audit", nodes: []groups.Node{nodeOf("a")}, code: groups.FailedPrecondition},
		{name: "off", off: "it is switched off", nodes: []groups.Node{nodeOf("a")}, code: groups.FailedPrecondition},
		{name: "again, and off", off: "it is switched off", nodes: []groups.Node{nodeOf("leaving")}},
		{name: "again, and held", held: "an audit", nodes: []groups.Node{nodeOf("leaving")}},
		{
			name: "too many names",
			pool: deployment("pool", 5, "0 9", named(strings.Repeat("x~,", 50_000))), nodes: []groups.Node{nodeOf("a")},
			code: groups.FailedPrecondition,
		},
		{name: "too many Nodes", nodes: make([]groups.Node, groups.MostNodes+1), code: groups.InvalidArgument},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.pool == nil {
				tc.pool = deployment("pool", 5, "0 9")
			}
			w := world{
				deployments: []*v1alpha1.MachineDeployment{tc.pool, deployment("other", 1, "0 9")}, machines: machines, held: tc.held, off: tc.off,
			}
			targets, err := w.read().Targets("pool", tc.nodes)
			var got *v1alpha1.MachineDeployment
			if err == nil {
				got, err = groups.Delete(w.live(0), targets)
			}
			checkCode(t, err, tc.code)
			checkShrunk(t, tc.pool, got, tc.want, tc.size)
		})
	}
}

// checkShrunk checks the list of names and the size that are written; without a size that nothing
// is.
func checkShrunk(t *testing.T, before, got *v1alpha1.MachineDeployment, names string, size int32) {
	t.Helper()
	switch {
	case size == 0 && got != nil:
		t.Errorf("written: %d replicas, %v", got.Spec.Replicas, got.Annotations)
	case size == 0:
	case got == nil:
		t.Error("nothing is written")
	default:
		if list := got.Annotations[v1alpha1.AnnotationTriggerDeletion]; list != names || got.Spec.Replicas != size {
			t.Errorf("%d replicas and %q, want %d and %q", got.Spec.Replicas, list, size, names)
		}
		changed, last := got.Annotations[v1alpha1.AnnotationLastReplicaChangeByScaler], names[strings.LastIndex(names, "~")+1:]
		if names != "" && changed != last {
			t.Errorf("the time of the change is %q, want %q", changed, last)
		}
		if names == "" && !cmp.Equal(got.Annotations, before.Annotations) {
			t.Errorf("annotations %v, want %v", got.Annotations, before.Annotations)
		}
	}
}

func TestDecrease(t *testing.T) {
	run := v1alpha1.MachineRunning
	// Those without a phase are n0, n1 and so on, and others r0, r1 and so on.
	of := func(n int, phase v1alpha1.MachinePhase, change ...func(*v1alpha1.Machine)) (all []*v1alpha1.Machine) {
		prefix := "r"
		if phase == "" {
			prefix = "n"
		}
		for i := range n {
			all = append(all, machine(fmt.Sprint(prefix, i), "pool-set", phase, change...))
		}
		return all
	}
	for _, tc := range []struct {
		name     string
		replicas int32
		limits   string
		machines []*v1alpha1.Machine
		delta    int32
		want     string
		size     int32
		code     groups.Code
	}{
		{name: "machines that are not created yet", replicas: 5, machines: of(3, run), delta: -2, size: 3},
		{
			name:     "machines without a VM",
			replicas: 5, machines: append(of(3, run), of(2, "")...), delta: -2, want: "n0~" + stamp + ",n1~" + stamp, size: 3,
		},
		{name: "those that are not created first", replicas: 5, machines: append(of(3, run), of(1, "")...), delta: -1, size: 4},
		{name: "and then those without a VM", replicas: 5, machines: append(of(3, run), of(1, "")...), delta: -2, want: "n0~" + stamp, size: 3},
		{
			name: "without a VM before one that waits for its Node", replicas: 3, delta: -1, want: "z~" + stamp, size: 2,
			machines: []*v1alpha1.Machine{
				machine("a", "pool-set", v1alpha1.MachinePending), machine("b", "pool-set", run), machine("z", "pool-set", ""),
			},
		},
		{name: "machines with a Node", replicas: 3, machines: of(3, run), delta: -1, code: groups.FailedPrecondition},
		{name: "more than have none", replicas: 5, machines: append(of(3, run), of(2, "")...), delta: -3, code: groups.FailedPrecondition},
		{
			name:     "those that are going do not count",
			replicas: 3, machines: append(of(3, run), of(2, "", leaving)...), delta: -1, code: groups.FailedPrecondition,
		},
		{name: "preserved ones stay", replicas: 2, machines: of(2, "", preserved), delta: -1, code: groups.FailedPrecondition},
		{
			name:     "a Node that is unhealthy is one",
			replicas: 1, machines: of(1, v1alpha1.MachineUnknown), delta: -1, code: groups.FailedPrecondition,
		},
		{
			name: "a Node that has just joined is one", replicas: 1, delta: -1, code: groups.FailedPrecondition,
			machines: of(1, v1alpha1.MachinePending, func(m *v1alpha1.Machine) {
				m.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
			}),
		},
		{name: "by 0", replicas: 3, delta: 0, code: groups.InvalidArgument},
		{name: "by a positive number", replicas: 3, delta: 1, code: groups.InvalidArgument},
		{name: "by more than there are", replicas: 3, delta: -4, code: groups.FailedPrecondition},
		{name: "by the most negative number", replicas: 3, delta: math.MinInt32, code: groups.FailedPrecondition},
		{name: "below the minimum", replicas: 3, limits: "2 9", delta: -2, code: groups.FailedPrecondition},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.limits == "" {
				tc.limits = "0 9"
			}
			pool := deployment("pool", tc.replicas, tc.limits)
			var machines []groups.Machine
			for _, m := range tc.machines {
				machines = append(machines, groups.MachineOf(m, now))
			}
			got, err := groups.Decrease(groups.Live{Deployment: pool, Now: now}, tc.delta, machines)
			checkCode(t, err, tc.code)
			checkShrunk(t, pool, got, tc.want, tc.size)
		})
	}
	for name, live := range map[string]groups.Live{
		"held": {Deployment: deployment("pool", 3, "0 9"), Held: "an audit"}, "off": {Deployment: deployment("pool", 3, "0 9"), Off: "x"},
		"rolling": {Deployment: deployment("pool", 3, "0 9", rolling)},
	} {
		if _, err := groups.Decrease(live, -1, nil); err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}
