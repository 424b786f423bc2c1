package remediation

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// Each change that decisions depend on leads to a pass over the roots concerned, and over no
// others.
func TestChangesEnqueueTheirRoots(t *testing.T) {
	d := deployment()
	s, alone, other := set("s", d, 1), set("alone", nil, 1), set("other", nil, 0)
	other.Namespace = "other"
	m := machine(s, 0, v1alpha1.MachineRunning, time.Now())
	during(t, []runtime.Object{d, s, alone, other}, func(b *bench) {
		elsewhere := target.New(nil)
		b.cfg.Targets = twoTargets{one: b.cluster, other: elsewhere}
		counts := 0
		inUse := b.breakers.inUse
		b.breakers.inUse = func() map[string][]disruption.Thresholds { counts++; return inUse() }
		for _, obj := range []any{class(), d, s, alone, other, m} {
			b.feed(obj)
		}
		b.Breakers().Receive(nil, []string{"r"})
		b.wait(time.Minute)
		b.passes()
		counts = 0
		if b.wait(time.Hour); counts > 0 || b.passes() != "" {
			t.Errorf("%d counts at rest", counts)
		}
		for _, tc := range []struct {
			what string
			do   func()
			want string
		}{
			{"a MachineDeployment changes", func() { b.feed(d.DeepCopy()) }, "d"},
			{"its set changes", func() { b.feed(s.DeepCopy()) }, "d"},
			{"a set without a controller changes", func() { b.feed(alone.DeepCopy()) }, "alone"},
			{"a set leaves its MachineDeployment", func() { b.feed(set("s", nil, 1)) }, "d s"},
			{"it returns", func() { b.feed(s.DeepCopy()) }, "d s"},
			{"a machine is unhealthy", func() { b.feed(machine(s, 0, v1alpha1.MachineUnknown, time.Now())) }, "d"},
			{"a machine gets another controller", func() {
				moved := machine(alone, 0, v1alpha1.MachineRunning, time.Now())
				moved.Name, moved.UID = m.Name, m.UID
				b.feed(moved)
			}, "alone d"},
			{"deletions are held in a namespace", func() { b.HoldChanged("n") }, "alone d"},
			{"deletions are held", func() { b.HoldChanged("") }, "alone d other"},
			{"a Namespace changes", func() { b.spaces.annotate("other", "") }, "other"},
			{"an API server is away", func() { b.ServerChanged(b.cluster) }, "alone d"},
			{"another one is", func() { b.ServerChanged(elsewhere) }, "other"},
			{"all are", func() { b.ServerChanged(nil) }, "alone d other"},
			{"a set is gone", func() { b.view.Sets.Remove(objectcache.Key(s), "") }, "d"},
		} {
			tc.do()
			if got := b.passes(); got != tc.want {
				t.Errorf("%s: passes over %q, want %q", tc.what, got, tc.want)
			}
		}
	})
}

// recounts reports whether f requests a count.
func (b *bench) recounts(f func()) bool {
	select {
	case <-b.breakers.dirty:
	default:
	}
	f()
	return len(b.breakers.dirty) > 0
}

func TestChangesThatAreCounted(t *testing.T) {
	b := newBench(t)
	defer b.end()
	s := set("s", nil, 1)
	m := machine(s, 0, v1alpha1.MachineRunning, time.Now())
	onMachine := func(change func(*v1alpha1.Machine)) func() {
		return func() { now := m.DeepCopy(); change(now); b.feed(now) }
	}
	onNode := func(change func(*corev1.Node)) func() {
		return func() { now := nodeOf(m); change(now); b.feed(now) }
	}
	report := map[string]string{"other": "{}"}
	for what, tc := range map[string]struct {
		do   func()
		want bool
	}{
		"a machine, nothing that counts": {onMachine(func(m *v1alpha1.Machine) { m.Annotations = map[string]string{"a": "b"} }), false},
		"a machine, its phase": {
			onMachine(func(m *v1alpha1.Machine) { m.Status.CurrentStatus.Phase = v1alpha1.MachineUnknown }), true,
		},
		"a machine, its controller": {onMachine(func(m *v1alpha1.Machine) { m.OwnerReferences[0].UID = "u" }), true},
		"a machine, no controller":  {onMachine(func(m *v1alpha1.Machine) { m.OwnerReferences = nil }), true},
		"a machine, until when it is kept": {
			onMachine(func(m *v1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: time.Now()} }), true,
		},
		"a Node, nothing that counts": {onNode(func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }), false},
		"a Node, its zone":            {onNode(func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelTopologyZone: "z2"} }), true},
		"a Node, its VM":              {onNode(func(n *corev1.Node) { n.Spec.ProviderID = "other" }), true},
		"a Node, its machine":         {onNode(func(n *corev1.Node) { n.Annotations = nil }), true},
		"a request for the report":    {func() { b.breakers.Report() }, true}, // holders and times have no event
		"the same reports":            {func() { b.breakers.Receive(maps.Clone(report), []string{"r"}) }, false},
		"another report":              {func() { b.breakers.Receive(map[string]string{"other": `{"empty":[1]}`}, []string{"r"}) }, true},
		"another holder":              {func() { b.breakers.Receive(report, []string{"other"}) }, true},
	} {
		b.join(m.DeepCopy())
		b.breakers.Receive(report, []string{"r"})
		if b.recounts(tc.do) != tc.want {
			t.Errorf("%s: counted: %v, want %v", what, !tc.want, tc.want)
		}
	}
}

// Machines count that are in a slot of this process, and have run.
func TestOwnCounts(t *testing.T) {
	b := newBench(t)
	defer b.end()
	s := set("s", nil, 1)
	for i, slot := range []string{"0", "1", "", "0"} {
		m := machine(s, i, v1alpha1.MachineUnknown, time.Now())
		m.Labels[v1alpha1.LabelSlot] = slot
		if i == 3 {
			m.Status.CurrentStatus.Phase = v1alpha1.MachinePending
			m.Spec.Class.Name = "in no zone"
		}
		b.feed(m)
	}
	b.feed(class())
	want := disruption.Counts{}
	want.Add(disruption.Scope{Zone: "z1"}, "n", disruption.Count{NotReady: 1})
	if diff := cmp.Diff(disruption.Own{0: want}, b.breakers.own(2)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What is not there, is no root, or has no holder is left alone, and so are all roots while
// Namespaces are not known.
func TestPassesWithoutEffect(t *testing.T) {
	d := deployment()
	owned, free, root, leaving := set("owned", d, 1), set("free", nil, 1), set("root", nil, 1), set("leaving", nil, 1)
	free.Labels, leaving.DeletionTimestamp = nil, &metav1.Time{Time: time.Now()}
	leaving.Annotations = map[string]string{v1alpha1.AnnotationCircuitBreaker: "invalid"} // it is not reported any more
	for _, s := range []*v1alpha1.MachineSet{owned, free, root} {
		// A pass would remove it.
		machinefacts.SetConditionOfSet(&s.Status, v1alpha1.MachineSetConditionType(v1alpha1.MachineDeploymentAPIServerAway),
			awayOf(true), time.Unix(1, 0))
	}
	b := newBench(t, owned, free, root)
	defer b.end()
	for _, s := range []*v1alpha1.MachineSet{owned, free, root, leaving} {
		b.feed(s)
	}
	pass := func(name string) int {
		if _, err := b.sets.reconcile(t.Context(), types.NamespacedName{Namespace: "n", Name: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return len(b.api.Actions())
	}
	for _, name := range []string{"missing", "owned", "free", "leaving"} {
		if n := pass(name) + len(b.events()); n > 0 {
			t.Errorf("%s: %d requests and Events", name, n)
		}
	}
	b.spaces.known = false
	if n := pass("root"); n > 0 {
		t.Errorf("%d requests before Namespaces are known", n)
	}
	b.spaces.known = true
	if n := pass("root"); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	if uid := b.sets.uid(types.NamespacedName{Namespace: "n", Name: "missing"}); uid != "" {
		t.Errorf("UID %q", uid)
	}
}
