package objectcache

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func pod(name, slot, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: name, ResourceVersion: version, Labels: map[string]string{v1alpha1.LabelSlot: slot},
	}}
}

func key(name string) types.NamespacedName { return types.NamespacedName{Namespace: "n", Name: name} }

// bench is an Objects whose changes are recorded.
func bench() (o *Objects[*corev1.Pod], changes func() []string) {
	o = New[*corev1.Pod]()
	var notes []string
	version := func(p *corev1.Pod) string {
		if p == nil {
			return "-"
		}
		return p.Name + p.ResourceVersion
	}
	o.OnChange(func(before, after *corev1.Pod) { notes = append(notes, version(before)+">"+version(after)) })
	return o, func() []string {
		defer func() { notes = nil }()
		slices.Sort(notes)
		return notes
	}
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestHandlersSeeChanges(t *testing.T) {
	o, changes := bench()
	o.Apply(pod("a", "1", "5"), false)
	expect(t, changes(), "->a5")
	o.Apply(pod("a", "1", "7"), false)
	expect(t, changes(), "a5>a7")
	o.Apply(pod("a", "1", "7"), false)
	o.Apply(pod("a", "1", "6"), false)
	expect(t, changes())
	o.Remove(key("a"), "6")
	o.Remove(key("b"), "")
	expect(t, changes())
	o.Remove(key("a"), "8")
	expect(t, changes(), "a7>-")
	if o.Len() != 0 {
		t.Errorf("%d objects are left", o.Len())
	}
}

// TestVersionsThatCannotBeCompared: the API server's last answer is right, be it an object or its
// end, so that nothing stays permanently.
func TestVersionsThatCannotBeCompared(t *testing.T) {
	o, changes := bench()
	o.Apply(pod("a", "1", "x"), false)
	o.Apply(pod("a", "1", "7"), false)
	o.Apply(pod("a", "1", "y"), false)
	expect(t, changes(), "->ax", "a7>ay", "ax>a7")
	o.Remove(key("a"), "9")
	expect(t, changes(), "ay>-")
}

func TestSilentObjectsAreAnnounced(t *testing.T) {
	o, changes := bench()
	o.Apply(pod("a", "1", "5"), true)
	o.Apply(pod("a", "1", "6"), true)
	o.Apply(pod("b", "2", "5"), true)
	o.Apply(pod("c", "1", "5"), true)
	o.Remove(key("c"), "")
	expect(t, changes())
	if _, ok := o.Get(key("a")); !ok {
		t.Error("a silent object cannot be read")
	}
	o.Announce(1)
	expect(t, changes(), "->a6")
	o.Announce(1)
	expect(t, changes(), "->a6")
	o.Apply(pod("a", "1", "7"), true) // the handlers already know it
	expect(t, changes(), "a6>-")
	o.Apply(pod("a", "1", "8"), false)
	expect(t, changes(), "->a8")
}

func TestReading(t *testing.T) {
	o, _ := bench()
	if err := o.AddIndex("by-first", func(p *corev1.Pod) []string { return []string{p.Name[:1]} }); err != nil {
		t.Fatal(err)
	}
	if err := o.AddIndex("by-first", nil); err == nil {
		t.Error("two indexes of one name")
	}
	for i, name := range []string{"a", "ab", "b"} {
		o.Apply(pod(name, fmt.Sprint(i%2), "1"), false)
	}
	for what, got := range map[string]int{
		"all": len(o.All()), "namespace": len(o.In("n")), "other namespace": len(o.In("m")), "slot 0": len(o.Of(0)),
		"index": len(o.By("by-first", "a")), "no index": len(o.By("?", "a")),
	} {
		want := map[string]int{"all": 3, "namespace": 3, "slot 0": 2, "index": 2}
		if got != want[what] {
			t.Errorf("%s: %d objects, want %d", what, got, want[what])
		}
	}
	nodes := New[*corev1.Node]()
	nodes.Apply(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x", ResourceVersion: "1"}}, false)
	if _, ok := nodes.Get(types.NamespacedName{Name: "x"}); !ok {
		t.Error("an object without a namespace is not found")
	}
}
