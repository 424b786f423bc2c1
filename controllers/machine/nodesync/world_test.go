package nodesync

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// nodeWorlds is how many are generated, with the seeds 1, 2, 3 …: a failure names its own.
const nodeWorlds = 2000

// world is a Node with several writers: the fleet, which applies what machine and class desire;
// another client, which has its own keys, and sometimes changes those of the fleet; and
// processes of the fleet that were stopped before they sent. Keys that begin with "his" are the
// other client's, those that begin with "asked" may be desired.
type world struct {
	*testing.T

	random  *rand.Rand
	node    *corev1.Node
	version int
	wanted  Wanted
	his     *corev1.Node // what the other client has added to the Node and not removed
	late    []request    // earlier requests of the fleet that have not arrived
}

// request is a patch and the version of the Node that it was computed for.
type request struct {
	*Patch
	version int
}

// TestNodeGetsDesiredValuesAndKeepsOthers lets all clients write for a while, while processes of
// the fleet die between writes; and then the fleet alone, until it has nothing left to write.
func TestNodeGetsDesiredValuesAndKeepsOthers(t *testing.T) {
	for seed := range uint64(worlds.Some(nodeWorlds)) {
		t.Run(fmt.Sprintf("seed %d", seed+1), func(t *testing.T) {
			w := &world{T: t, random: rand.New(rand.NewPCG(seed+1, 0)), his: empty(), node: empty()}
			_, w.wanted = given()
			for range w.random.IntN(25) {
				w.step()
			}
			w.settle()
		})
	}
}

func empty() *corev1.Node {
	n := &corev1.Node{}
	n.Labels, n.Annotations, n.Status.Capacity = map[string]string{}, map[string]string{}, corev1.ResourceList{}
	return n
}

func (w *world) step() {
	switch w.random.IntN(6) {
	case 0:
		w.askAnew()
	case 1:
		w.he(w.key("his"), true)
	case 2:
		w.he(w.key("asked"), false)
	case 3:
		w.hesitate()
	default:
		w.write()
	}
}

// hesitate has a process of ours be stopped before it sends, and perhaps one of before go on. Of
// the first request for a Node there is only one: until then it has no other writer in the fleet.
func (w *world) hesitate() {
	if patch := next(w.node, w.wanted); patch != nil && len(w.node.Finalizers) > 0 {
		w.late = append(w.late, request{patch, w.version})
	}
	if len(w.late) > 0 && w.random.IntN(2) == 0 {
		w.send(w.late[0])
		w.late = w.late[1:]
	}
}

func (w *world) key(prefix string) string {
	domain := []string{"example.com", "k8s.io"}[w.random.IntN(2)]
	return fmt.Sprintf("%s.%s/%d", prefix, domain, w.random.IntN(3))
}

func (w *world) value() string { return fmt.Sprint(w.random.IntN(3)) }

// askAnew changes template and class.
func (w *world) askAnew() {
	template, class := &v1alpha1.NodeTemplateSpec{}, &v1alpha1.MachineClass{NodeTemplate: &v1alpha1.NodeTemplate{}}
	template.Labels, template.Annotations = map[string]string{}, map[string]string{}
	class.NodeTemplate.VirtualCapacity = corev1.ResourceList{}
	for range w.random.IntN(4) {
		switch key := w.key("asked"); w.random.IntN(4) {
		case 0:
			template.Labels[key] = w.value()
		case 1:
			template.Annotations[key] = w.value()
		case 2:
			taint := corev1.Taint{Key: key, Value: w.value(), Effect: w.effect()}
			if find(template.Spec.Taints, taint) < 0 {
				template.Spec.Taints = append(template.Spec.Taints, taint)
			}
		default:
			class.NodeTemplate.VirtualCapacity[corev1.ResourceName(key)] = resource.MustParse(w.value())
		}
	}
	w.wanted.Template, w.wanted.Class = template, class
	w.remember()
}

// remember records restricted values on the machine before they are added to the Node.
func (w *world) remember() {
	w.wanted.Applied = w.wanted.Applied.With(Restricted(w.wanted.Template))
}

// forget has it say no more what has gone, when the Node was just written and is as it should be.
func (w *world) forget() {
	if next(w.node, w.wanted) == nil {
		w.wanted.Applied = Restricted(w.wanted.Template)
	}
}

func (w *world) effect() corev1.TaintEffect {
	return []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}[w.random.IntN(2)]
}

// he puts something on the Node or takes it off. What he does with a key of ours is undone.
func (w *world) he(key string, isHis bool) {
	on := []*corev1.Node{w.node.DeepCopy()}
	if w.node = on[0]; isHis {
		on = append(on, w.his)
	}
	what, off, value, effect := w.random.IntN(4), w.random.IntN(3) == 0, w.value(), w.effect()
	if !isHis && what == 3 {
		off = false // the other client cannot have replaced a taint of the fleet: the new one would be its own
	}
	for _, n := range on {
		switch taint := (corev1.Taint{Key: key, Value: value, Effect: effect}); what {
		case 0:
			change(n.Labels, key, value, off, isHis)
		case 1:
			change(n.Annotations, key, value, off, isHis)
		case 2:
			if _, there := n.Status.Capacity[corev1.ResourceName(key)]; there || isHis {
				n.Status.Capacity[corev1.ResourceName(key)] = resource.MustParse(value)
			}
		default:
			i := find(n.Spec.Taints, taint)
			n.Spec.Taints = slices.Clone(n.Spec.Taints)
			switch {
			case i >= 0 && off:
				n.Spec.Taints = slices.Delete(n.Spec.Taints, i, i+1)
			case i >= 0:
				n.Spec.Taints[i].Value = value
			case isHis && !off:
				n.Spec.Taints = append(n.Spec.Taints, taint)
			}
		}
	}
	w.version++
}

// change sets a key or takes it off; one of ours only if it is there, as it would be his else.
func change(m map[string]string, key, value string, off, isHis bool) {
	if _, there := m[key]; !there && !isHis {
		return
	}
	if m[key] = value; off {
		delete(m, key)
	}
}

// write sends the fleet's next request, and reports whether there was one.
func (w *world) write() bool {
	patch := next(w.node, w.wanted)
	if patch == nil {
		return false
	}
	w.send(request{patch, w.version})
	if !patch.Status {
		w.forget()
	}
	return true
}

func (w *world) send(r request) {
	if r.AsRead && r.version != w.version {
		return // refused
	}
	w.node = patched(w, w.node, r.Patch)
	fill(w.node)
	w.version++
}

// fill restores the empty maps that JSON leaves out.
func fill(n *corev1.Node) {
	e := empty()
	maps.Copy(e.Labels, n.Labels)
	maps.Copy(e.Annotations, n.Annotations)
	maps.Copy(e.Status.Capacity, n.Status.Capacity)
	n.Labels, n.Annotations, n.Status.Capacity = e.Labels, e.Annotations, e.Status.Capacity
}

// settle writes until nothing is left to write, and looks at the Node.
func (w *world) settle() {
	for writes := 0; w.write(); writes++ {
		if writes == 5 {
			w.Fatalf("it is written again and again: %s", w.text(w.node))
		}
	}
	want := w.his
	want.Finalizers = []string{v1alpha1.NodeFinalizerName}
	want.Labels[v1alpha1.LabelMachineName], want.Labels[v1alpha1.LabelSlot] = "m", "7"
	want.Annotations[v1alpha1.AnnotationMachine] = "n/m/u"
	maps.Copy(want.Labels, w.wanted.Template.Labels)
	maps.Copy(want.Annotations, w.wanted.Template.Annotations)
	want.Spec.Taints = append(want.Spec.Taints, w.wanted.Template.Spec.Taints...)
	if template := w.wanted.Class.NodeTemplate; template != nil {
		maps.Copy(want.Status.Capacity, template.VirtualCapacity)
	}
	for _, key := range []string{v1alpha1.AnnotationLastAppliedNodeTemplate, v1alpha1.AnnotationLastAppliedVirtualCapacity} {
		delete(w.node.Annotations, key)
	}
	less := func(a, b corev1.Taint) bool { return a.ToString() < b.ToString() }
	if diff := cmp.Diff(want, w.node, cmpopts.EquateEmpty(), cmpopts.SortSlices(less)); diff != "" {
		w.Errorf("what is asked for and what is his (-), and the Node (+):\n%s", diff)
	}
}

func (w *world) text(n *corev1.Node) string {
	text, err := json.Marshal(n)
	if err != nil {
		w.Fatal(err)
	}
	return string(text)
}
