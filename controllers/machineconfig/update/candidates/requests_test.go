package candidates

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// asking returns a Node as node does, which requests a drain, or the end of a cordon.
func asking(t *testing.T, request string, words ...string) *corev1.Node {
	t.Helper()
	n := node(t, words)
	n.Annotations[v1alpha1.DaemonPrefix.DesiredDrain()] = request
	return n
}

func with(n *corev1.Node, annotation, value string) *corev1.Node {
	n.Annotations[annotation] = value
	return n
}

// tainted returns a Node that has been Ready for so long, or not been, with the taint of the node
// lifecycle controller.
func tainted(n *corev1.Node, key string, since time.Duration) *corev1.Node {
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
	n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(start.Add(-since))
	return n
}

func TestRequests(t *testing.T) {
	const notReady, unreachable = corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable
	ready := func() *corev1.Node { return asking(t, "uncordon-b", "n1", "current=b", "desired=b") }
	const since, answered = v1alpha1.AnnotationDrainSince, string(v1alpha1.DaemonPrefix) + "/lastAppliedDrain"
	terminating := asking(t, "drain-b", "n1", "desired=b")
	terminating.Status.Conditions = append(terminating.Status.Conditions, corev1.NodeCondition{
		Type: machinev1alpha1.NodeTerminating, Status: corev1.ConditionTrue,
	})
	full := "maxUnavailable is used up"
	for name, tc := range map[string]struct {
		nodes  []*corev1.Node
		change func(w *World)
		want   []string
	}{
		"none":          {nodes: []*corev1.Node{node(t, []string{"n1"})}},
		"is answered":   {nodes: []*corev1.Node{with(asking(t, "drain-b", "n1", "desired=b"), answered, "drain-b")}},
		"of the target": {nodes: []*corev1.Node{asking(t, "drain-b", "n1", "desired=b")}, want: []string{"n1 Drain"}},
		"of a former":   {nodes: []*corev1.Node{asking(t, "drain-c", "n1", "desired=c")}, want: []string{"n1 Drain"}},
		"of the last": {
			nodes: []*corev1.Node{asking(t, "drain-a", "n1", "current=b", "desired=a")}, want: []string{"n1 Drain"},
		},
		"of a strange": {
			nodes: []*corev1.Node{asking(t, "drain-x", "n1", "desired=x")}, want: []string{"n1 Refuse the configuration is none of the pool"},
		},
		"not assigned": {
			nodes: []*corev1.Node{asking(t, "drain-b", "n1")}, want: []string{"n1 Refuse it was not assigned that configuration"},
		},
		"of nothing": {
			nodes: []*corev1.Node{asking(t, "drain-", "n1", "desired=")}, want: []string{"n1 Refuse it was not assigned that configuration"},
		},
		"unknown": {
			nodes: []*corev1.Node{asking(t, "reboot", "n1")}, want: []string{"n1 Refuse the request is unknown"},
		},
		"uncordon": {
			nodes: []*corev1.Node{asking(t, "uncordon-b", "n1", "current=b", "desired=b")}, want: []string{"n1 Uncordon"},
		},
		"uncordon early": {
			nodes: []*corev1.Node{asking(t, "uncordon-a", "n1", "desired=b")}, want: []string{"n1 Refuse it is not done with its configuration"},
		},
		"uncordon other": {
			nodes: []*corev1.Node{asking(t, "uncordon-x", "n1")}, want: []string{"n1 Refuse it is not done with its configuration"},
		},
		"uncordon before its taint is removed": {
			nodes: []*corev1.Node{tainted(ready(), notReady, time.Second)}, want: []string{"n1 Wait again after 4s"},
		},
		"uncordon after an outage":          {nodes: []*corev1.Node{tainted(ready(), unreachable, 0)}, want: []string{"n1 Wait again after 5s"}},
		"uncordon although the taint stays": {nodes: []*corev1.Node{tainted(ready(), notReady, clearing)}, want: []string{"n1 Uncordon"}},
		"uncordon, another taint":           {nodes: []*corev1.Node{tainted(ready(), "other", time.Second)}, want: []string{"n1 Uncordon"}},
		"uncordon, its clock is ahead":      {nodes: []*corev1.Node{tainted(ready(), notReady, -time.Hour)}, want: []string{"n1 Uncordon"}},
		"uncordon while it is not ready": {
			nodes: []*corev1.Node{tainted(asking(t, "uncordon-b", "n1", "current=b", "desired=b", "ready=false"), notReady, time.Second)},
			want:  []string{"n1 Uncordon"},
		},
		"terminating": {nodes: []*corev1.Node{terminating}},
		"held":        {nodes: []*corev1.Node{asking(t, "drain-b", "n1", "desired=b")}, change: func(w *World) { w.Held["n1"] = true }},
		"one at a time": {
			nodes: []*corev1.Node{asking(t, "drain-b", "n1", "desired=b"), asking(t, "drain-b", "n2", "desired=b")},
			want:  []string{"n1 Drain", "n2 Wait " + full},
		},
		"two at a time": {
			nodes:  []*corev1.Node{asking(t, "drain-b", "n1", "desired=b"), asking(t, "drain-b", "n2", "desired=b")},
			change: func(w *World) { w.Pool.Spec.MaxUnavailable = new(intstr.FromInt32(2)) }, want: []string{"n1 Drain", "n2 Drain"},
		},
		"another is not ready": {
			nodes: []*corev1.Node{asking(t, "drain-b", "n1", "desired=b"), node(t, []string{"n2", "ready=false"})},
			want:  []string{"n1 Wait " + full},
		},
		"a machine is missing": {
			nodes: []*corev1.Node{asking(t, "drain-b", "n1", "desired=b")}, change: func(w *World) { w.Absent = 1 },
			want: []string{"n1 Wait " + full},
		},
		"without a daemon": {
			nodes: []*corev1.Node{asking(t, "drain-b", "n1", "desired=b"), node(t, []string{"n2", "ready=false", "current=", "desired=", "state="})},
			want:  []string{"n1 Drain"},
		},
		"has begun": {
			nodes: []*corev1.Node{with(asking(t, "drain-b", "n1", "desired=b"), since, "x"), node(t, []string{"n2", "ready=false"})},
			want:  []string{"n1 Drain"},
		},
		"another has begun, and a user has uncordoned it": {
			nodes: []*corev1.Node{asking(t, "drain-b", "n1", "desired=b"), with(asking(t, "drain-b", "n2", "desired=b"), since, "x")},
			want:  []string{"n1 Wait " + full, "n2 Drain"},
		},
		"it is not ready itself": {
			nodes: []*corev1.Node{asking(t, "drain-b", "n1", "desired=b", "ready=false"), node(t, []string{"n2", "ready=false"})},
			want:  []string{"n1 Drain"},
		},
		"a hold": {
			nodes: []*corev1.Node{asking(t, "drain-b", "n1", "desired=b", "ready=false")}, change: func(w *World) { w.Hold = "held" },
			want: []string{"n1 Wait held"},
		},
		"a hold after it has begun": {
			nodes: []*corev1.Node{with(asking(t, "drain-b", "n1", "desired=b"), since, "x")}, change: func(w *World) { w.Hold = "held" },
			want: []string{"n1 Drain"},
		},
		"uncordon under a hold": {
			nodes: []*corev1.Node{asking(t, "uncordon-a", "n1")}, change: func(w *World) { w.Hold = "held" }, want: []string{"n1 Uncordon"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := World{
				Now: start, Live: true, Prefix: v1alpha1.DaemonPrefix, Pool: &v1alpha1.MachineConfigPool{}, Nodes: tc.nodes, Held: map[string]bool{},
			}
			w.Pool.Spec.Paused = true // nothing is assigned
			w.Pool.Status = v1alpha1.MachineConfigPoolStatus{
				CurrentMachineConfig: "b", CompletedMachineConfig: "a", AbandonedMachineConfigs: []string{"c"},
			}
			if tc.change != nil {
				tc.change(&w)
			}
			var got []string
			begins := false
			for _, r := range Decide(w).Requests {
				line := strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Node.Name, r.Do, r.Why))
				if r.Again > 0 {
					line += fmt.Sprint(" again after ", r.Again)
				}
				got = append(got, line)
				begins = begins || r.Begins()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			w.Live = false
			if v := Decide(w); v.ListLive != begins {
				t.Errorf("a live list is requested: %t; a drain begins: %t", v.ListLive, begins)
			}
		})
	}
}

// A hold, and a pool whose Nodes are not known, assign nothing and say why.
func TestNothingIsAssignedDuringAHold(t *testing.T) {
	for name, tc := range map[string]struct {
		change       func(w *World)
		reason, text string
	}{
		"hold":    {func(w *World) { w.Hold = "annotation x" }, ReasonHeld, "annotation x"},
		"problem": {func(w *World) { w.Problem, w.Nodes = "no such MachineDeployment", nil }, ReasonNodesUnknown, "no such"},
	} {
		w := World{
			Now: start, Live: true, Prefix: v1alpha1.DaemonPrefix, Pool: &v1alpha1.MachineConfigPool{},
			Nodes: []*corev1.Node{node(t, []string{"n1"})},
		}
		w.Pool.Status.CurrentMachineConfig = "b"
		tc.change(&w)
		v := Decide(w)
		is := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.PoolUpdating)
		if len(v.Assign)+len(v.Taint) > 0 || is.Reason != tc.reason || !strings.Contains(is.Message, tc.text) ||
			v.Status.CompletedMachineConfig != "" {
			t.Errorf("%s: assign %v, taint %v, condition %+v", name, v.Assign, v.Taint, is)
		}
	}
}

// After an outage of an API server all Nodes may be not Ready: those with an abandoned target must
// not all be assigned another one at once.
func TestAbandonedNodesWaitUntilTheServerHasSettled(t *testing.T) {
	w := World{Now: start, Live: true, Prefix: v1alpha1.DaemonPrefix, Pool: &v1alpha1.MachineConfigPool{}}
	w.Pool.Status = v1alpha1.MachineConfigPoolStatus{CurrentMachineConfig: "b", AbandonedMachineConfigs: []string{"c"}}
	for i := range 5 {
		w.Nodes = append(w.Nodes, node(t, []string{fmt.Sprint("n", i), "current=c", "desired=c", "ready=unknown"}))
	}
	w.Unsettled = true
	if v := Decide(w); len(v.Assign) > 0 {
		t.Errorf("unsettled: %d are assigned", len(v.Assign))
	}
	w.Unsettled = false
	if v := Decide(w); len(v.Assign) != 5 {
		t.Errorf("settled: %d are assigned", len(v.Assign))
	}
}

// A pool that assigns nothing to its Nodes any more has no taints on them.
func TestTaintsOfAPoolThatAssignsNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(p *v1alpha1.MachineConfigPool)
		want   int
	}{
		"paused":               {func(p *v1alpha1.MachineConfigPool) { p.Spec.Paused = true }, 0},
		"by MachineDeployment": {func(p *v1alpha1.MachineConfigPool) { p.Spec.Rollout = v1alpha1.RolloutMachineDeployment }, 1},
		"being deleted":        {func(p *v1alpha1.MachineConfigPool) { p.DeletionTimestamp = &metav1.Time{Time: start} }, 1},
	} {
		w := World{
			Now: start, Live: true, Prefix: v1alpha1.DaemonPrefix, Pool: &v1alpha1.MachineConfigPool{},
			Nodes: []*corev1.Node{node(t, []string{"n1", "tainted"})},
		}
		w.Pool.Status.CurrentMachineConfig = "b"
		tc.change(w.Pool)
		if v := Decide(w); len(v.Untaint) != tc.want || len(v.Taint) > 0 {
			t.Errorf("%s: untaint %v, taint %v", name, v.Untaint, v.Taint)
		}
	}
}

func TestStatusDrainsAreExplained(t *testing.T) {
	w := World{
		Now: start, Live: true, Prefix: v1alpha1.DaemonPrefix, Pool: &v1alpha1.MachineConfigPool{},
		Drains: map[string]string{"n1": "Draining Node n1: 1 pod left"},
	}
	w.Pool.Status.CurrentMachineConfig = "b"
	for i := range 6 {
		w.Nodes = append(w.Nodes, asking(t, "drain-b", fmt.Sprint("n", i+1), "desired=b", "state=working", fmt.Sprintf("age=%dh", 10-i)))
	}
	want := "Draining Node n1: 1 pod left. Node n2 is not drained: maxUnavailable is used up. 4 more Nodes wait."
	if message := meta.FindStatusCondition(Decide(w).Status.Conditions, v1alpha1.PoolUpdating).Message; !strings.HasSuffix(message, want) {
		t.Errorf("message %q, want at its end %q", message, want)
	}
}
