package objectcache

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

// A View of a namespace shows nothing of another one, by no way of reading, and reports its
// changes while it is used.
func TestViewOfANamespace(t *testing.T) {
	all := NewView()
	var of [2]*View
	var begin, end [2]func()
	var changes []string
	for i, namespace := range []string{"n", "m"} {
		of[i], begin[i], end[i] = all.Of(namespace)
		of[i].Machines.OnChange(func(before, after *v1alpha1.Machine) {
			change := namespace + ":"
			for _, m := range []*v1alpha1.Machine{before, after} {
				if m == nil {
					change += " none"
					continue
				}
				change += " " + m.Namespace + "/" + m.Name + m.ResourceVersion
			}
			changes = append(changes, change)
		})
		of[i].Machines.Undecodable.OnChange(func(_, after *decode.Failure) { changes = append(changes, namespace+": "+after.Name) })
	}
	set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "m", Name: "set", UID: "set"}}
	machine := func(namespace, name, version string) *v1alpha1.Machine {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(namespace + name), ResourceVersion: version,
			Labels: map[string]string{v1alpha1.LabelNode: "node", v1alpha1.LabelSlot: "1"},
		}}
		if name == "owned" {
			m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))}
		}
		return m
	}
	all.Machines.Put(machine("n", "early", "1"), false)
	begin[0]()
	begin[1]()
	for _, namespace := range []string{"n", "m"} {
		all.Machines.Put(machine(namespace, "a", "1"), false)
		all.Machines.Put(machine(namespace, "owned", "1"), true)
	}
	broken := metav1.PartialObjectMetadata{ObjectMeta: machine("m", "broken", "1").ObjectMeta}
	all.Machines.Put(&decode.Failure{PartialObjectMetadata: broken}, false)
	all.Machines.Put(machine("n", "a", "2"), false)
	all.Machines.Delete(types.NamespacedName{Namespace: "m", Name: "a"}, "")
	end[0]()
	all.Machines.Put(machine("n", "a", "3"), false)
	all.Machines.Put(machine("m", "b", "1"), false)
	expect(t, changes, "n: none n/a1", "m: none m/a1", "m: broken", "n: n/a1 n/a2", "m: m/a1 none", "m: none m/b1")
	_, own := of[0].Machines.Get(types.NamespacedName{Namespace: "n", Name: "a"})
	_, other := of[0].Machines.Get(types.NamespacedName{Namespace: "m", Name: "b"})
	_, undecodable := of[0].Machines.Find(types.NamespacedName{Namespace: "m", Name: "broken"})
	if !own || other || undecodable {
		t.Errorf("Get finds the own %t, another one %t, one that cannot be decoded %t; want the own only", own, other, undecodable)
	}
	for what, got := range map[string]int{
		"All": len(of[0].Machines.All()), "Len": of[0].Machines.Len(), "Each": len(of[0].Machines.Each()),
		"on the Node": len(of[0].MachinesOnNode("node")), "in the slot": len(of[0].Machines.InSlot(1)),
	} {
		if got != 3 {
			t.Errorf("%s: %d machines of the namespace, want 3", what, got)
		}
	}
	if of, under := len(all.Machines.Under(set)), len(of[0].Machines.Under(set)); of != 1 || under != 0 {
		t.Errorf("under a set of the other namespace: %d machines, and %d in the view, want 1 and none", of, under)
	}
	if in := len(of[0].Machines.In("m")) + len(of[0].Machines.Orphans("m")); in != 0 {
		t.Errorf("%d machines of the other namespace", in)
	}
}
