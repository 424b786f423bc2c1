package strays

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/worlds"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/label"
)

// treeWorlds is how many are generated, with the seeds 1, 2, 3 …: a failure names its own.
const treeWorlds = 300

// treeWorld is a namespace in which somebody edits labels, and replicas of which each sees strays, and the objects of its own
// slots only.
type treeWorld struct {
	t        *testing.T
	dice     *rand.Rand
	control  *metadatafake.FakeMetadataClient
	replicas []*bench
	told     []map[object]string // of each replica, the labels that it was told of
	objects  []object
	roots    []string // of each object
}

// Whatever labels are edited and whichever slots change hands: in the end every tree fits, although nobody sees all of it.
func TestEveryTreeFitsInTheEnd(t *testing.T) {
	for seed := range uint64(worlds.Some(treeWorlds)) {
		t.Run(fmt.Sprintf("seed %d", seed+1), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTreeWorld(t, seed+1)
				for range 5 {
					for _, o := range w.objects {
						if w.dice.IntN(2) == 0 {
							w.edit(o, w.value())
						}
					}
					for slot := range 4 {
						if w.dice.IntN(2) == 0 {
							w.handOver(slot)
						}
					}
					w.pass(time.Duration(w.dice.IntN(4)) * time.Second)
				}
				w.pass(time.Minute)
				for i, o := range w.objects {
					if got, want := w.label(o), label.Value(slots().Of("n", w.roots[i])); got != want {
						t.Errorf("seed %d: %s %s is in slot %q, want %s", seed+1, o.kind, o.key.Name, got, want)
					}
				}
			})
		})
	}
}

func newTreeWorld(t *testing.T, seed uint64) *treeWorld {
	t.Helper()
	w := &treeWorld{t: t, dice: rand.New(rand.NewPCG(seed, 0))}
	var all []*metav1.PartialObjectMetadata
	add := func(kind label.Kind, name, parent, root string) string {
		o := meta(kind, name, w.value(), parent)
		o.Labels["pool"] = "b" // nobody adopts it
		all = append(all, o)
		w.objects = append(w.objects, object{kind, types.NamespacedName{Namespace: "n", Name: name}})
		w.roots = append(w.roots, root)
		return name
	}
	for d := range 1 + w.dice.IntN(2) { // what is done for one tree may do for another
		root := add(label.Deployment, strconv.Itoa(d), "", strconv.Itoa(d))
		for s := range w.dice.IntN(3) {
			set := add(label.Set, fmt.Sprintf("%d-%d", w.dice.IntN(4), d*10+s), root, root)
			for m := range w.dice.IntN(3) {
				add(label.Machine, fmt.Sprintf("%d-%s-%d", w.dice.IntN(4), set, m), set, root)
			}
		}
	}
	for m := range w.dice.IntN(2) {
		orphan := fmt.Sprintf("%d-orphan", m)
		add(label.Machine, orphan, "", orphan)
	}
	w.control = fakeCluster(all...)
	target := fakeCluster()
	for range 3 {
		b := benchBetween(t, w.control, target)
		w.replicas, w.told = append(w.replicas, b), append(w.told, map[object]string{})
	}
	for slot := range 4 {
		w.replicas[w.dice.IntN(3)].hold(slot, true)
	}
	for _, b := range w.replicas {
		b.run()
	}
	w.pass(0)
	return w
}

func (w *treeWorld) value() string {
	return []string{"", "0", "1", "2", "3", "4", "nonsense"}[w.dice.IntN(7)]
}

// pass has time pass, in which the caches show what happens.
func (w *treeWorld) pass(d time.Duration) {
	for end := time.Now().Add(d); ; time.Sleep(500 * time.Millisecond) {
		synctest.Wait()
		for i := range w.replicas {
			w.show(i)
		}
		if !time.Now().Before(end) {
			return
		}
	}
}

// show tells a replica what has changed in its slots.
func (w *treeWorld) show(replica int) {
	b, told := w.replicas[replica], w.told[replica]
	for _, o := range w.objects {
		before, known := told[o]
		switch found, ok := b.known(o.kind, o.key); {
		case !ok && known:
			delete(told, o)
			b.labeler.Left(o.kind, o.key)
		case ok && before != found.GetLabels()[v1alpha1.LabelSlot]:
			told[o] = found.GetLabels()[v1alpha1.LabelSlot]
			b.labeler.Seen(o.kind, found)
		}
	}
}

// handOver gives a slot to another replica, or to the same one once more.
func (w *treeWorld) handOver(slot int) {
	for i, b := range w.replicas {
		b.hold(slot, false)
		w.show(i)
	}
	next := w.dice.IntN(len(w.replicas))
	w.replicas[next].hold(slot, true)
	w.show(next)
	w.replicas[next].labeler.Opened([]int{slot})
}

func (w *treeWorld) edit(o object, value string) {
	data := []byte(`{"metadata":{"labels":{"` + v1alpha1.LabelSlot + `":"` + value + `"}}}`)
	if value == "" {
		data = []byte(`{"metadata":{"labels":{"` + v1alpha1.LabelSlot + `":null}}}`)
	}
	_, err := w.control.Resource(resource(o.kind)).Namespace(o.key.Namespace).
		Patch(context.Background(), o.key.Name, types.MergePatchType, data, metav1.PatchOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *treeWorld) label(o object) string {
	found, err := w.control.Resource(resource(o.kind)).Namespace(o.key.Namespace).Get(context.Background(), o.key.Name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return found.Labels[v1alpha1.LabelSlot]
}
