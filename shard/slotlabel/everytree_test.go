package slotlabel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// treeWorlds is the number of generated worlds, with the seeds 1, 2, 3 …: a failure names its own.
const treeWorlds = 300

// stuck is the suffix of the names of objects whose label cannot be written.
const stuck = "-stuck"

// treeWorld is a namespace in which a client edits labels, and replicas of which each caches all
// unlabeled objects, but labeled ones of its own slots only.
type treeWorld struct {
	t        *testing.T
	dice     *rand.Rand
	control  *apiserver.Server
	replicas []*bench
	reported []map[object]string // of each replica, the labels that were reported to it
	objects  []object
	roots    []string // of each object
	desks    []*desk  // of each replica
	visits   int
}

// desk is the controllers of a replica behind its Admission. Keys are enqueued when the caches show
// a change of an object, and when the Admission enqueues them, and at no other time.
type desk struct {
	*bench

	runners map[policy.Kind]*runner.Runner[types.NamespacedName]

	mu      sync.Mutex
	waiting map[object]bool // keys that were enqueued, and whose pass has not begun
}

// inner is the gate of a kind without the Admission: it admits the objects in the caches.
type inner struct {
	*desk
	kind policy.Kind
}

func (i inner) Admit(ctx context.Context, key types.NamespacedName) (context.Context, func(), bool) {
	_, known := i.known(i.kind, key)
	return ctx, func() {}, known
}

func newDesk(t *testing.T, b *bench) *desk {
	t.Helper()
	d := &desk{bench: b, runners: map[policy.Kind]*runner.Runner[types.NamespacedName]{}, waiting: map[object]bool{}}
	for _, kind := range []policy.Kind{policy.Machine, policy.Set, policy.Deployment} {
		run, err := runner.New(runner.Config[types.NamespacedName]{
			Name: kind.String(), Clock: clock.RealClock{},
			// The runner sees a Gate and no Notifier: the desk notes what is enqueued again.
			Gate: struct {
				runner.Gate[types.NamespacedName]
			}{
				gateOf(b.labeler.Admission(), kind, inner{d, kind}, func(key types.NamespacedName) { d.enqueue(object{kind, key}) }),
			},
			Reconcile: func(_ context.Context, key types.NamespacedName) (runner.Result, error) {
				d.pass(object{kind, key})
				return runner.Result{}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		d.runners[kind] = run
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { run.Run(ctx) })
		t.Cleanup(func() { stop(); running.Wait() })
	}
	return d
}

func (d *desk) enqueue(o object) {
	d.mu.Lock()
	d.waiting[o] = true
	d.mu.Unlock()
	d.runners[o.kind].Enqueue(o.key)
}

// pass fails for a root that names another slot than its own: a pass in its own slot may still run.
func (d *desk) pass(o object) {
	d.mu.Lock()
	delete(d.waiting, o)
	d.mu.Unlock()
	if found, known := d.known(o.kind, o.key); known {
		if of := policy.Of(o.kind, found); of.Parent == "" && of.Slot != policy.Value(slots().Of(o.key.Namespace, o.key.Name)) {
			d.t.Errorf("the root %s %s is reconciled in slot %s", o.kind, o.key.Name, of.Slot)
		}
	}
	time.Sleep(100 * time.Millisecond)
}

// forgotten returns the keys of cached objects that were rejected and are never enqueued again.
func (d *desk) forgotten() (keys []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for o := range d.waiting {
		if _, known := d.known(o.kind, o.key); known {
			keys = append(keys, fmt.Sprintf("%s %s", o.kind, o.key.Name))
		}
	}
	return keys
}

// Regardless of which labels are edited, which unlabeled objects are created and deleted, and which
// slots change hands: in the end every tree fits, although no replica sees all of it, and all of
// its objects are reconciled, even next to an object whose label cannot be written.
func TestEveryTreeFitsInTheEnd(t *testing.T) {
	for seed := range uint64(worlds.Some(treeWorlds)) {
		t.Run(fmt.Sprintf("seed %d", seed+1), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTreeWorld(t, seed+1)
				for range 5 {
					w.comeAndGo()
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
					if got, want := w.label(o), policy.Value(slots().Of("n", w.roots[i])); got != want {
						t.Errorf("seed %d: %s %s is in slot %q, want %s", seed+1, o.kind, o.key.Name, got, want)
					}
				}
				for i, d := range w.desks {
					if keys := d.forgotten(); len(keys) > 0 {
						t.Errorf("seed %d: replica %d has forgotten %v", seed+1, i, keys)
					}
				}
			})
		})
	}
}

func newTreeWorld(t *testing.T, seed uint64) *treeWorld {
	t.Helper()
	w := &treeWorld{t: t, dice: rand.New(rand.NewPCG(seed, 0)), control: apiserver.Recording()}
	add := func(kind policy.Kind, name, parent, root string) string {
		o := meta(kind, name, w.value(), parent)
		o.Labels["pool"] = "b" // no parent adopts it
		apiserver.Add(w.control, o)
		w.objects = append(w.objects, object{kind, types.NamespacedName{Namespace: "n", Name: name}})
		w.roots = append(w.roots, root)
		return name
	}
	for d := range 1 + w.dice.IntN(2) { // work for one tree may be a trigger for another
		root := add(policy.Deployment, strconv.Itoa(d), "", strconv.Itoa(d))
		for s := range w.dice.IntN(3) {
			set := add(policy.Set, fmt.Sprintf("%d-%d", w.dice.IntN(4), d*10+s), root, root)
			for m := range w.dice.IntN(3) {
				add(policy.Machine, fmt.Sprintf("%d-%s-%d", w.dice.IntN(4), set, m), set, root)
			}
		}
	}
	for m := range w.dice.IntN(2) {
		orphan := fmt.Sprintf("%d-orphan", m)
		add(policy.Machine, orphan, "", orphan)
	}
	if w.dice.IntN(2) == 0 {
		apiserver.Add(w.control, meta(policy.Deployment, strconv.Itoa(w.dice.IntN(4))+stuck, "", ""))
	}
	lag, target := time.Duration(w.dice.IntN(700))*time.Millisecond, apiserver.Recording()
	for range 3 {
		b := benchBetween(t, w.control, target, lag)
		w.replicas, w.reported = append(w.replicas, b), append(w.reported, map[object]string{})
		w.desks = append(w.desks, newDesk(t, b))
	}
	w.control.Fault(func(r apiserver.Request) error {
		if r.Verb == "patch" && strings.HasSuffix(r.Name, stuck) {
			return errors.New("a webhook refuses it")
		}
		return nil
	})
	for slot := range 4 {
		w.replicas[w.dice.IntN(3)].setHeld(slot, true)
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

// pass advances the time, in which the caches show the changes.
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

// show updates a replica with the changes in its slots.
func (w *treeWorld) show(replica int) {
	b, reported := w.replicas[replica], w.reported[replica]
	for _, o := range w.objects {
		before, known := reported[o]
		switch found, ok := b.known(o.kind, o.key); {
		case !ok && known:
			delete(reported, o)
			b.labeler.Left(o.kind, o.key)
		case ok && before != found.GetLabels()[v1alpha1.LabelSlot]:
			reported[o] = found.GetLabels()[v1alpha1.LabelSlot]
			b.labeler.Seen(o.kind, found)
			w.desks[replica].enqueue(o)
		}
	}
}

// comeAndGo creates an unlabeled MachineSet below a root, and deletes one. It may be labeled in
// between.
func (w *treeWorld) comeAndGo() {
	w.visits++
	root := w.roots[w.dice.IntN(len(w.roots))]
	visitor := meta(policy.Set, fmt.Sprintf("%d-visitor-%d", w.dice.IntN(4), w.visits), "", root)
	apiserver.Add(w.control, visitor)
	w.pass(time.Duration(w.dice.IntN(3)) * 300 * time.Millisecond)
	w.control.Remove("machinesets", "n", visitor.Name)
}

// handOver hands a slot over to another replica, or to the same one again.
func (w *treeWorld) handOver(slot int) {
	for i, b := range w.replicas {
		b.setHeld(slot, false)
		w.show(i)
	}
	next := w.dice.IntN(len(w.replicas))
	w.replicas[next].setHeld(slot, true)
	w.show(next)
	w.replicas[next].labeler.Opened([]int{slot})
}

// edit writes a label when nothing else is due, so that the label that a pass finds when it begins
// is the one it was admitted with.
func (w *treeWorld) edit(o object, value string) {
	synctest.Wait()
	written := `"` + value + `"`
	if value == "" {
		written = "null"
	}
	w.control.Merge(o.kind.Resource(), "n", o.key.Name, `{"metadata":{"labels":{"`+v1alpha1.LabelSlot+`":`+written+`}}}`)
}

func (w *treeWorld) label(o object) string {
	return w.control.Get(o.kind.Resource(), "n", o.key.Name).GetLabels()[v1alpha1.LabelSlot]
}
