package stamp

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

const prefix = v1alpha1.DaemonPrefix

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// config returns the name of a configuration of pool "p".
func config(letter string) string { return "rendered-p-" + letter }

func newPool(change ...func(*v1alpha1.MachineConfigPool)) *v1alpha1.MachineConfigPool {
	pool := &v1alpha1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "uid-p", CreationTimestamp: metav1.NewTime(now)}}
	pool.Spec.MachineRef = &v1alpha1.MachineReference{Kind: KindDeployment, Namespace: "n", Name: "d"}
	pool.Spec.Rollout = v1alpha1.RolloutMachineDeployment
	pool.Status.CurrentMachineConfig = config("b")
	for _, f := range change {
		f(pool)
	}
	return pool
}

func newDeployment(stamp string) *machinev1alpha1.MachineDeployment {
	d := &machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d", UID: "uid-d"}}
	if stamp != "" {
		d.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationMachineConfig: stamp}
	}
	return d
}

func deleted(o metav1.Object) { o.SetDeletionTimestamp(new(metav1.NewTime(now))) }

func TestStamp(t *testing.T) {
	degraded := func(status metav1.ConditionStatus) func(p *v1alpha1.MachineConfigPool) {
		return func(p *v1alpha1.MachineConfigPool) {
			meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{Type: v1alpha1.PoolRenderDegraded, Status: status, Reason: "R"})
		}
	}
	older := func(p *v1alpha1.MachineConfigPool) {
		p.Name, p.UID, p.CreationTimestamp = "older", "uid-older", metav1.NewTime(now.Add(-time.Second))
		p.Spec.Rollout = v1alpha1.RolloutDaemon
	}
	for _, tc := range []struct {
		name   string
		change func(p *v1alpha1.MachineConfigPool)
		w      func(w *World)
		want   Hold // "" is the target
	}{
		{name: "the template names nothing"},
		{name: "the template names another one", w: func(w *World) { w.Deployment = newDeployment(config("a")) }},
		{name: "rendering has worked", change: degraded(metav1.ConditionFalse)},
		{name: "the MachineDeployment is paused, which its controller minds", w: func(w *World) { w.Deployment.Spec.Paused = true }},
		{
			name: "daemons are assigned it", change: func(p *v1alpha1.MachineConfigPool) { p.Spec.Rollout = v1alpha1.RolloutDaemon },
			want: HoldOtherRollout,
		},
		{name: "rollout is not set", change: func(p *v1alpha1.MachineConfigPool) { p.Spec.Rollout = "" }, want: HoldOtherRollout},
		{
			name: "it refers to a MachineSet", change: func(p *v1alpha1.MachineConfigPool) { p.Spec.MachineRef.Kind = KindSet },
			want: HoldOtherRollout,
		},
		{name: "it refers to nothing", change: func(p *v1alpha1.MachineConfigPool) { p.Spec.MachineRef = nil }, want: HoldOtherRollout},
		{name: "the pool is being deleted", change: func(p *v1alpha1.MachineConfigPool) { deleted(p) }, want: HoldPoolDeleted},
		{name: "the pool is paused", change: func(p *v1alpha1.MachineConfigPool) { p.Spec.Paused = true }, want: HoldPaused},
		{name: "rendering fails", change: degraded(metav1.ConditionTrue), want: HoldDegraded},
		{name: "nothing was rendered", change: func(p *v1alpha1.MachineConfigPool) { p.Status.CurrentMachineConfig = "" }, want: HoldNoTarget},
		{
			name: "the target is another pool's", change: func(p *v1alpha1.MachineConfigPool) { p.Status.CurrentMachineConfig = "rendered-p-p-1" },
			want: HoldNoTarget,
		},
		{name: "an older pool refers to it", w: func(w *World) { w.Pools = append(w.Pools, newPool(older)) }, want: HoldOtherPool},
		{name: "the pool refers to another one by now", w: func(w *World) {
			w.Pools = []*v1alpha1.MachineConfigPool{newPool(func(p *v1alpha1.MachineConfigPool) { p.Spec.MachineRef.Name = "e" })}
		}, want: HoldOtherPool},
		{name: "the pool is gone from the cache", w: func(w *World) { w.Pools = nil }, want: HoldOtherPool},
		{name: "the MachineDeployment is not known", w: func(w *World) { w.Deployment = nil }, want: HoldNoDeployment},
		{name: "the MachineDeployment is being deleted", w: func(w *World) { deleted(w.Deployment) }, want: HoldDeleted},
		{name: "it is stamped", w: func(w *World) { w.Deployment = newDeployment(config("b")) }, want: HoldStamped},
		{name: "the pool comes from the cache", w: func(w *World) { w.Live = false }, want: HoldReadLive},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pool := newPool()
			if tc.change != nil {
				tc.change(pool)
			}
			w := World{Pool: pool, Live: true, Pools: []*v1alpha1.MachineConfigPool{pool}, Deployment: newDeployment("")}
			if tc.w != nil {
				tc.w(&w)
			}
			got, hold := Stamp(w)
			if hold != tc.want || (got == config("b")) != (tc.want == "") {
				t.Errorf("%q, hold %q; want hold %q", got, hold, tc.want)
			}
		})
	}
}

// Stamped changes one annotation of the template, and nothing of what was observed.
func TestStamped(t *testing.T) {
	before := newDeployment("")
	after := Stamped(before, config("b"))
	if before.Spec.Template.Annotations != nil || after.Spec.Template.Annotations[v1alpha1.AnnotationMachineConfig] != config("b") ||
		len(after.Annotations) > 0 {
		t.Errorf("before %v, after %v", before.Spec.Template.Annotations, after)
	}
}

// onNode is a Node as a table describes it: current, desired, state, drain and answer.
type onNode struct {
	current, desired, state, reason, drain, drained string
	stage, result                                   string
	notReady, open                                  bool
}

func (o onNode) node() *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "uid-node", Labels: map[string]string{}, Annotations: map[string]string{}},
	}
	for key, value := range map[string]string{
		prefix.CurrentConfig(): o.current, prefix.DesiredConfig(): o.desired, prefix.State(): o.state, prefix.Reason(): o.reason,
		prefix.DesiredDrain(): o.drain, prefix.LastAppliedDrain(): o.drained,
	} {
		if value != "" {
			n.Annotations[key] = value
		}
	}
	if o.result != "" {
		n.Labels[machinev1alpha1.LabelUpdateResult] = o.result
	}
	ready := corev1.ConditionTrue
	if o.notReady {
		ready = corev1.ConditionFalse
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	if o.stage != "" {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: machinev1alpha1.NodeInPlaceUpdate, Status: corev1.ConditionTrue, Reason: o.stage,
		})
	}
	n.Spec.Unschedulable = !o.open
	return n
}

// changes returns what differs between two Nodes, as "key=value", sorted; a value that was removed
// is empty.
func changes(before, after *corev1.Node) (all []string) {
	for _, pair := range [][2]map[string]string{{before.Labels, after.Labels}, {before.Annotations, after.Annotations}} {
		for key, value := range pair[1] {
			if pair[0][key] != value {
				all = append(all, key+"="+value)
			}
		}
		for key := range pair[0] {
			if _, stays := pair[1][key]; !stays {
				all = append(all, key+"=")
			}
		}
	}
	slices.Sort(all)
	return all
}

const (
	ready      = machinev1alpha1.NodeReasonReadyForUpdate
	failed     = machinev1alpha1.NodeReasonUpdateFailed
	successful = machinev1alpha1.NodeReasonUpdateSuccessful
)

// newSet returns a MachineSet of a name whose template names a configuration, and the class "c".
func newSet(name, config string) *machinev1alpha1.MachineSet {
	set := &machinev1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID("uid-" + name)}}
	set.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationMachineConfig: config}
	set.Spec.Template.Spec.Class.Name = "c"
	return set
}

func TestDecideNode(t *testing.T) {
	a, b := config("a"), config("b")
	assign := []string{v1alpha1.LabelPool + "=p", prefix.DesiredConfig() + "=" + b}
	succeed := []string{machinev1alpha1.LabelUpdateResult + "=successful"}
	fail := func(why string) []string {
		return []string{machinev1alpha1.AnnotationUpdateFailedReason + "=" + why, machinev1alpha1.LabelUpdateResult + "=failed"}
	}
	becomes := func(set, letter string) func(w *NodeWorld) {
		return func(w *NodeWorld) { w.New = newSet(set, config(letter)) }
	}
	redirect := func(set, letter string) []string {
		return []string{v1alpha1.LabelPool + "=p", machinev1alpha1.AnnotationUpdateTo + "=" + set, prefix.DesiredConfig() + "=" + config(letter)}
	}
	answer := func(request string) []string { return []string{prefix.LastAppliedDrain() + "=" + request} }
	for _, tc := range []struct {
		name   string
		node   onNode
		change func(w *NodeWorld)
		want   []string
		wake   time.Duration
	}{
		{
			name: "ready: it is assigned what the next template names", node: onNode{current: a, desired: a, state: "done", stage: ready},
			want: assign,
		},
		{name: "ready, and no daemon has run yet", node: onNode{stage: ready}, want: assign},
		{
			name: "ready, and broken by the one before", node: onNode{current: a, desired: config("x"), state: "degraded", stage: ready},
			want: assign,
		},
		{name: "the daemon works", node: onNode{current: a, desired: b, state: "working", stage: ready}},
		{name: "the daemon has not seen it yet", node: onNode{current: a, desired: b, state: "done", stage: ready}},
		{
			name: "it requests a drain", node: onNode{current: a, desired: b, state: "working", drain: "drain-" + b, stage: ready},
			want: answer("drain-" + b),
		},
		{name: "it requests a drain, and pods may come", node: onNode{
			current: a, desired: b, state: "working", drain: "drain-" + b, stage: ready, open: true,
		}},
		{name: "it requests the end of the cordon", node: onNode{
			current: b, desired: b, state: "working", drain: "uncordon-" + b, drained: "drain-" + b, stage: ready,
		}, want: answer("uncordon-" + b)},
		{name: "it is done", node: onNode{current: b, desired: b, state: "Done", stage: ready}, want: succeed},
		{name: "it is done, and the Node is not Ready", node: onNode{current: b, desired: b, state: "done", stage: ready, notReady: true}},
		{name: "it has a result", node: onNode{current: a, desired: a, stage: ready, result: "successful"}},
		{name: "it reports a failure, seen first", node: onNode{current: a, desired: b, state: "degraded", stage: ready}, wake: FailAfter},
		{
			name: "it reports a failure for a while", node: onNode{current: a, desired: b, state: "degraded", reason: "disk full", stage: ready},
			change: func(w *NodeWorld) { w.FailingSince = now.Add(-FailAfter + time.Second) }, wake: time.Second,
		},
		{
			name: "it reports a failure for long", node: onNode{current: a, desired: b, state: "degraded", reason: "disk full", stage: ready},
			change: func(w *NodeWorld) { w.FailingSince = now.Add(-FailAfter) },
			want:   fail("machine-config-daemon reports degraded with " + b + ": disk full"),
		},
		{
			name: "it cannot do it in place", node: onNode{current: a, desired: b, state: "unreconcilable", reason: "fips", stage: ready},
			change: func(w *NodeWorld) { w.FailingSince = now.Add(-FailAfter) },
			want:   fail("machine-config-daemon reports unreconcilable with " + b + ": fips"),
		},
		{
			name: "it reports drift after the update", node: onNode{current: b, desired: b, state: "degraded", reason: "1 differ", stage: ready},
			change: func(w *NodeWorld) { w.FailingSince = now.Add(-FailAfter) },
			want:   fail("machine-config-daemon reports degraded with " + b + ": 1 differ"),
		},
		{name: "it was late, and is done", node: onNode{current: b, desired: b, state: "done", stage: failed, result: "failed"}, want: succeed},
		{
			name: "it has failed, and reports another failure",
			node: onNode{current: a, desired: b, state: "degraded", stage: failed, result: "failed"}, wake: FailAfter,
		},
		{
			name:   "it has failed, and reports another failure for long",
			node:   onNode{current: a, desired: b, state: "degraded", reason: "undone twice", stage: failed, result: "failed"},
			change: func(w *NodeWorld) { w.FailingSince = now.Add(-FailAfter) },
			want:   fail("machine-config-daemon reports degraded with " + b + ": undone twice")[:1],
		},
		{
			name: "it has failed, as recorded",
			node: onNode{current: a, desired: b, state: "degraded", reason: "disk full", stage: failed, result: "failed"},
			change: func(w *NodeWorld) {
				w.FailingSince = now.Add(-FailAfter)
				w.Node.Annotations[machinev1alpha1.AnnotationUpdateFailedReason] = "machine-config-daemon reports degraded with " + b + ": disk full"
			},
		},
		{name: "it has failed, and is done with another one", node: onNode{
			current: a, desired: a, state: "done", stage: failed, result: "failed",
		}},
		{
			name: "another template: it is redirected", node: onNode{current: a, desired: b, state: "working", stage: ready},
			change: becomes("newer", "c"), want: redirect("newer", "c"),
		},
		{
			name: "another template: it is not assigned the one before", node: onNode{current: a, desired: a, state: "done", stage: ready},
			change: becomes("newer", "c"), want: redirect("newer", "c"),
		},
		{
			name: "another template: the one before is not completed", node: onNode{current: b, desired: b, state: "done", stage: ready},
			change: becomes("old", "a"), want: redirect("old", "a"),
		},
		{name: "another template: that it has failed with the one before does not count", node: onNode{
			current: a, desired: b, state: "degraded", stage: failed, result: "failed",
		}, change: becomes("old", "a"), want: redirect("old", "a")},
		{
			name: "another template, and it has a result", node: onNode{current: b, desired: b, state: "done", stage: ready, result: "successful"},
			change: becomes("old", "a"),
		},
		{
			name: "another template, and its failure is not recorded yet",
			node: onNode{current: a, desired: b, state: "degraded", stage: ready, result: "failed"}, change: becomes("old", "a"),
		},
		{
			name: "another template, and it is not drained yet",
			node: onNode{current: a, desired: a, state: "done", stage: machinev1alpha1.NodeReasonSelectedForUpdate}, change: becomes("newer", "c"),
		},
		{name: "another template, and another agent updates it", node: onNode{current: a, desired: a, stage: ready}, change: func(w *NodeWorld) {
			becomes("newer", "c")(w)
			w.To.Spec.Template.Annotations = nil
		}},
		{
			name: "another template that names no configuration", node: onNode{current: a, desired: b, state: "working", stage: ready},
			change: func(w *NodeWorld) { becomes("newer", "c")(w); w.New.Spec.Template.Annotations = nil },
		},
		{
			name: "another template of another class", node: onNode{current: a, desired: b, state: "working", stage: ready},
			change: func(w *NodeWorld) { becomes("newer", "c")(w); w.New.Spec.Template.Spec.Class.Name = "large" },
		},
		{name: "its failure was withdrawn", node: onNode{current: b, desired: b, state: "done", stage: failed}},
		{
			name: "it has failed and still drains",
			node: onNode{current: a, desired: b, state: "working", drain: "drain-" + b, stage: failed, result: "failed"}, want: answer("drain-" + b),
		},
		{name: "a user has reported the success too early", node: onNode{
			current: b, desired: b, state: "working", drain: "uncordon-" + b, stage: successful, result: "successful",
		}, want: answer("uncordon-" + b)},
		{name: "a drain that no update has requested", node: onNode{
			current: a, desired: b, state: "working", drain: "drain-" + b, stage: successful,
		}},
		{name: "a drain of a Node that is not updated", node: onNode{current: a, desired: b, state: "working", drain: "drain-" + b}},
		{name: "a candidate", node: onNode{current: a, desired: a, state: "done", stage: machinev1alpha1.NodeReasonCandidateForUpdate}},
		{name: "the next set is not known", node: onNode{current: a, desired: a, stage: ready}, change: func(w *NodeWorld) { w.To = nil }},
		{name: "the next template names none", node: onNode{current: a, desired: a, stage: ready}, change: func(w *NodeWorld) {
			w.To.Spec.Template.Annotations = nil
		}},
		{
			name: "the next template names one of another pool", node: onNode{current: a, desired: a, stage: ready},
			change: func(w *NodeWorld) {
				w.To.Spec.Template.Annotations[v1alpha1.AnnotationMachineConfig] = "rendered-secret-1"
			},
			want: fail("the template names the configuration rendered-secret-1, which is none of pool p"),
		},
		{
			name: "the next template has another class", node: onNode{current: a, desired: a, stage: ready},
			change: func(w *NodeWorld) { w.To.Spec.Template.Spec.Class.Name = "large" },
			want:   fail("the template has the class large instead of c, and machine-config-daemon changes the configuration only"),
		},
		{name: "the machine is being deleted", node: onNode{current: a, desired: a, stage: ready}, change: func(w *NodeWorld) {
			deleted(w.Machine)
		}},
		{name: "the Node is being deleted", node: onNode{current: a, desired: a, stage: ready}, change: func(w *NodeWorld) { deleted(w.Node) }},
		{name: "the pool assigns by itself", node: onNode{current: a, desired: a, stage: ready}, change: func(w *NodeWorld) {
			w.Pool.Spec.Rollout = v1alpha1.RolloutDaemon
		}},
		{
			name: "the pool is paused: what has begun ends", node: onNode{current: b, desired: b, state: "done", stage: ready},
			change: func(w *NodeWorld) { w.Pool.Spec.Paused = true }, want: succeed,
		},
		{name: "it has booted with it", node: onNode{current: b, state: "done"}, want: assign},
		{name: "it has booted with another one", node: onNode{current: a, state: "done"}},
		{
			name: "it has booted with one of another pool", node: onNode{current: "rendered-secret-1", state: "done"},
			change: func(w *NodeWorld) { w.Machine.Annotations[v1alpha1.AnnotationMachineConfig] = "rendered-secret-1" },
		},
		{name: "it runs with it", node: onNode{current: b, desired: b, state: "done"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := NodeWorld{
				Now: now, Prefix: prefix, Pool: newPool(), Node: tc.node.node(), Machine: &machinev1alpha1.Machine{}, To: newSet("to", b),
				New: newSet("to", b),
			}
			w.Machine.Annotations = map[string]string{v1alpha1.AnnotationMachineConfig: config("b")}
			w.Machine.Spec.Class.Name = "c"
			if tc.change != nil {
				tc.change(&w)
			}
			before := w.Node.DeepCopy()
			v := DecideNode(w)
			if diff := cmp.Diff(tc.want, changes(before, v.Node)); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if v.Wake != tc.wake || (v.Did != "") != (len(tc.want) > 0) || (v.Node == w.Node) != (len(tc.want) == 0) {
				t.Errorf("wake %v, did %q, same Node %t", v.Wake, v.Did, v.Node == w.Node)
			}
			if diff := cmp.Diff(before, w.Node); diff != "" {
				t.Errorf("the observed Node was changed:\n%s", diff)
			}
			w.Node = v.Node
			if v.Did == DidRedirect {
				w.To = w.New
			}
			if again := DecideNode(w); again.Node != w.Node {
				t.Errorf("not idempotent: %v", changes(w.Node, again.Node))
			}
		})
	}
}

// A Node without labels and annotations can be assigned a configuration, and a long reason is cut.
func TestDecideNodeBounds(t *testing.T) {
	w := NodeWorld{
		Now: now, Prefix: prefix, Pool: newPool(), Node: onNode{stage: ready}.node(), Machine: &machinev1alpha1.Machine{},
		To: &machinev1alpha1.MachineSet{},
	}
	w.To.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationMachineConfig: config("b")}
	w.Node.Labels, w.Node.Annotations = nil, nil
	if v := DecideNode(w); v.Did != DidAssign || v.Node.Annotations[prefix.DesiredConfig()] != config("b") {
		t.Errorf("%+v", v)
	}
	w.Node = onNode{stage: ready, desired: config("b"), state: "degraded", reason: strings.Repeat("ä", 2000)}.node()
	w.FailingSince = now.Add(-time.Hour)
	if got := DecideNode(w).Node.Annotations[machinev1alpha1.AnnotationUpdateFailedReason]; len(got) > mostReason || got == "" {
		t.Errorf("%d bytes", len(got))
	}
}

func TestRollOf(t *testing.T) {
	sets := []*machinev1alpha1.MachineSet{
		{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "b"}},
	}
	isNew := func(_ *machinev1alpha1.MachineDeployment, set *machinev1alpha1.MachineSet) bool {
		return set.Name == "b"
	}
	for name, tc := range map[string]struct {
		strategy machinev1alpha1.MachineDeploymentStrategyType
		paused   bool
		want     Roll
	}{
		"rolling":         {machinev1alpha1.RollingUpdateMachineDeploymentStrategyType, false, Roll{true, "b"}},
		"recreating":      {machinev1alpha1.RecreateMachineDeploymentStrategyType, false, Roll{true, "b"}},
		"paused":          {machinev1alpha1.RollingUpdateMachineDeploymentStrategyType, true, Roll{false, "b"}},
		"update in place": {machinev1alpha1.InPlaceUpdateMachineDeploymentStrategyType, false, Roll{false, "b"}},
	} {
		d := newDeployment("")
		d.Spec.Strategy.Type, d.Spec.Paused = tc.strategy, tc.paused
		if got := RollOf(d, sets, isNew); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
