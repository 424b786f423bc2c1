package scale

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/brake"
)

var born = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// cluster is a small model of an API server with one set, a cache that lags as it likes, and processes that die anywhere.
type cluster struct {
	t       *rapid.T
	set     *v1alpha1.MachineSet
	version int64
	// history of the machines: the cache shows any one of the states since the last it has shown.
	history []map[types.UID]*v1alpha1.Machine
	shown   int
	serial  int
	limit   int // most machines that were ever wanted since the last time that all was quiet
	dying   bool
}

func (c *cluster) machines() map[types.UID]*v1alpha1.Machine { return c.history[len(c.history)-1] }

func (c *cluster) change(f func(map[types.UID]*v1alpha1.Machine)) {
	next := maps.Clone(c.machines())
	f(next)
	c.history = append(c.history, next)
}

func (c *cluster) standing() int {
	n := 0
	for _, m := range c.machines() {
		if m.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// observe lets the cache move on by as much as is drawn.
func (c *cluster) observe(current bool) World {
	if current {
		c.shown = len(c.history) - 1
	} else {
		c.shown = rapid.IntRange(c.shown, len(c.history)-1).Draw(c.t, "cache")
	}
	w := World{Now: born, Set: c.set, Done: Done{
		Created: map[int64]bool{}, Taken: map[int64]bool{}, Deleted: map[types.UID]bool{}, Refused: map[types.UID]bool{}, Adopted: map[types.UID]bool{},
		Updated: map[types.UID]bool{},
	}}
	for _, m := range c.history[c.shown] {
		w.Owned = append(w.Owned, m)
		if current || rapid.Bool().Draw(c.t, "permit") { // whoever gives them does so sooner or later
			w.Permits = append(w.Permits, brake.Permit{UID: m.UID})
		}
	}
	slices.SortFunc(w.Owned, func(a, b *v1alpha1.Machine) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return w
}

func (c *cluster) dies() bool { return c.dying && rapid.IntRange(0, 11).Draw(c.t, "dies") == 0 }

// pass runs one pass on a copy of the set that may be old: then its first write is refused.
func (c *cluster) pass(current bool) {
	w := c.observe(current)
	read := c.version
	for range 32 {
		v := Decide(w)
		if c.dies() {
			return
		}
		switch v.Do {
		case Rest:
			if v.Set != nil && read == c.version {
				c.store(v.Set)
			}
			return
		case Save:
			if read != c.version {
				return // conflict
			}
			c.store(v.Set)
			if c.set == nil {
				return
			}
			read, w.Set = c.version, c.set
		case ListLive:
			w.Live = &Live{Owned: map[types.UID]bool{}, Names: map[string]bool{}}
			for uid, m := range c.machines() {
				w.Live.Owned[uid], w.Live.Names[m.Name] = true, true
			}
		case Create:
			for _, ordinal := range v.Ordinals {
				if c.dies() {
					return
				}
				c.create(&w, ordinal)
			}
		case Delete:
			for _, m := range v.Machines {
				if c.dies() {
					return
				}
				if is, ok := c.machines()[m.UID]; ok && is != m {
					w.Done.Refused[m.UID] = true // it has changed since the cache saw it
					continue
				}
				c.delete(m.UID)
				w.Done.Deleted[m.UID] = true
			}
		case Update:
			for _, m := range v.Machines {
				if c.dies() {
					return
				}
				c.update(&w, m)
			}
		case Adopt, Release:
			c.t.Fatalf("unexpected %s", v.Do)
		}
	}
	c.t.Fatalf("32 actions and no end: %+v", w.Set.Annotations)
}

// update writes a machine, unless it has changed since the cache saw it.
func (c *cluster) update(w *World, wanted *v1alpha1.Machine) {
	w.Done.Updated[wanted.UID] = true
	for i, m := range w.Owned {
		if m.UID == wanted.UID && c.machines()[m.UID] == m {
			c.change(func(all map[types.UID]*v1alpha1.Machine) { all[m.UID] = wanted })
			w.Owned[i] = wanted
		}
	}
}

func (c *cluster) store(set *v1alpha1.MachineSet) {
	if set.DeletionTimestamp != nil && len(set.Finalizers) == 0 {
		if len(c.machines()) > 0 {
			c.t.Fatalf("the set is let go and %d machines are left", len(c.machines()))
		}
		c.set = nil
		return
	}
	c.set = set
	c.version++
}

func (c *cluster) create(w *World, ordinal int64) {
	name := Name(w.Set.Name, w.Set.UID, ordinal)
	for _, m := range c.machines() {
		if m.Name == name {
			if theirs, _ := Ordinal(m); theirs == ordinal {
				w.Done.Created[ordinal] = true
			} else {
				w.Done.Taken[ordinal] = true
			}
			return
		}
	}
	c.serial++
	c.change(func(all map[types.UID]*v1alpha1.Machine) {
		uid := types.UID(fmt.Sprintf("machine-%d", c.serial))
		all[uid] = &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: uid, Labels: map[string]string{"a": "b"},
			CreationTimestamp: metav1.NewTime(born.Add(time.Duration(c.serial) * time.Second)),
			Annotations:       map[string]string{v1alpha1.AnnotationOrdinal: strconv.FormatInt(ordinal, 10)},
		}}
	})
	w.Done.Created[ordinal] = true
	if c.standing() > c.limit {
		c.t.Fatalf("%d machines stand, and never more than %d were wanted", c.standing(), c.limit)
	}
}

func (c *cluster) delete(uid types.UID) {
	if m, ok := c.machines()[uid]; ok && m.DeletionTimestamp == nil {
		c.change(func(all map[types.UID]*v1alpha1.Machine) {
			ending := m.DeepCopy()
			now := metav1.NewTime(born)
			ending.DeletionTimestamp = &now
			all[uid] = ending
		})
	}
}

// user deletes a machine, or lets one fail, or recover, or one that is ending be gone.
func (c *cluster) disturb() {
	uids := make([]types.UID, 0, len(c.machines()))
	for uid := range c.machines() {
		uids = append(uids, uid)
	}
	if len(uids) == 0 {
		return
	}
	slices.Sort(uids)
	uid := rapid.SampledFrom(uids).Draw(c.t, "machine")
	m := c.machines()[uid]
	switch {
	case m.DeletionTimestamp != nil:
		c.change(func(all map[types.UID]*v1alpha1.Machine) { delete(all, uid) })
	case m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed:
		c.change(func(all map[types.UID]*v1alpha1.Machine) {
			recovered := m.DeepCopy()
			recovered.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
			all[uid] = recovered
		})
	case rapid.Bool().Draw(c.t, "fails"):
		c.change(func(all map[types.UID]*v1alpha1.Machine) {
			failed := m.DeepCopy()
			failed.Status.CurrentStatus.Phase = v1alpha1.MachineFailed
			all[uid] = failed
		})
	default:
		c.delete(uid)
	}
}

func (c *cluster) scale(replicas int) {
	c.set = c.set.DeepCopy()
	c.set.Spec.Replicas = int32(replicas)
	c.version++
	c.limit = max(c.limit, replicas)
}

func newCluster(t *rapid.T) *cluster {
	return &cluster{t: t, dying: true, history: []map[types.UID]*v1alpha1.Machine{{}}, set: &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Name: "s", Labels: map[string]string{v1alpha1.LabelSlot: "7"}, UID: types.UID(rapid.StringMatching(`[a-f0-9]{8}`).Draw(t, "uid"))},
		Spec: v1alpha1.MachineSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: v1alpha1.MachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
			},
		},
	}}
}

// However stale the cache and wherever processes die, there are never more machines than were wanted, and in the end there
// are as many as are wanted.
func TestScaling(t *testing.T) {
	for range rounds {
		rapid.Check(t, func(t *rapid.T) {
			c := newCluster(t)
			for range rapid.IntRange(1, 40).Draw(t, "steps") {
				switch rapid.IntRange(0, 7).Draw(t, "event") {
				case 0:
					c.scale(rapid.IntRange(0, 8).Draw(t, "replicas"))
				case 1, 2:
					c.disturb()
				default:
					c.pass(false)
				}
			}
			c.settle()
		})
	}
}

// rounds of rapid's 100 worlds each.
const rounds = 20

// settle lets all disturbance end, and looks at what the set comes to.
func (c *cluster) settle() {
	c.dying = false
	quiet := func() {
		for range 12 {
			if c.set == nil {
				return
			}
			c.pass(true)
			c.change(func(all map[types.UID]*v1alpha1.Machine) {
				for uid, m := range all {
					if m.DeletionTimestamp != nil {
						delete(all, uid)
					}
				}
			})
		}
	}
	quiet()
	if got := c.standing(); got != int(c.set.Spec.Replicas) {
		c.t.Fatalf("%d machines stand and %d are wanted; intents %s", got, c.set.Spec.Replicas, c.set.Annotations[v1alpha1.AnnotationIntents])
	}
	in, err := ReadIntents(c.set)
	if err != nil || !settled(in) {
		c.t.Fatalf("all is quiet and intents are left: %+v, %v", in, err)
	}
	if got := c.set.Status.Replicas; got != c.set.Spec.Replicas {
		c.t.Fatalf("status.replicas is %d and %d are there", got, c.set.Spec.Replicas)
	}
	now := metav1.NewTime(born)
	c.set = c.set.DeepCopy()
	c.set.DeletionTimestamp = &now
	c.version++
	quiet()
	if c.set != nil {
		c.t.Fatalf("the set is not let go, %d machines are left", len(c.machines()))
	}
}

// A set that is deleted as kubectl delete --cascade=orphan does keeps its machines, and goes as soon as they were taken from
// it: then the next one has its name, and selects them.
func TestMachinesOfASetThatLeavesOrphansStay(t *testing.T) {
	now := metav1.NewTime(born)
	set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Name: "s", Namespace: "n", UID: "s-uid", Labels: map[string]string{v1alpha1.LabelSlot: "7"}, DeletionTimestamp: &now,
		Finalizers: []string{v1alpha1.FinalizerName},
	}}
	w := World{Now: born, Set: set, Owned: []*v1alpha1.Machine{{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "m-uid"}}}}
	if v := Decide(w); v.Do != Delete {
		t.Errorf("deleted with its machines: %s, want %s", v.Do, Delete)
	}
	set.Finalizers = append(set.Finalizers, metav1.FinalizerOrphanDependents)
	if v := Decide(w); v.Do != Rest || slices.Contains(v.Set.Finalizers, v1alpha1.FinalizerName) || len(v.Set.Finalizers) != 1 {
		t.Errorf("deleted without its machines: %s, want %s without our finalizer", v.Do, Rest)
	}
}

// What has failed is replaced when it has its permit, and not before.
func TestNothingIsReplacedWithoutAPermit(t *testing.T) {
	for name, tc := range map[string]struct {
		permits []brake.Permit
		want    int
	}{
		"none":              {nil, 0},
		"another's":         {[]brake.Permit{{Name: "m", UID: "other"}}, 0},
		"its own":           {[]brake.Permit{{Name: "m", UID: "m-uid"}}, 1},
		"its own, and kept": {[]brake.Permit{{Name: "kept", UID: "kept-uid"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
				Name: "s", UID: "s-uid", Labels: map[string]string{v1alpha1.LabelSlot: "7"}, Finalizers: []string{v1alpha1.FinalizerName},
			}}
			set.Spec = v1alpha1.MachineSetSpec{Replicas: 2, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, Template: v1alpha1.MachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
			}}
			w := World{Now: born, Set: set, Permits: tc.permits, Live: &Live{Owned: map[types.UID]bool{"m-uid": true, "kept-uid": true}}}
			for _, name := range []string{"m", "kept"} {
				m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid"), Labels: map[string]string{"a": "b"}}}
				m.Status.CurrentStatus.Phase = v1alpha1.MachineFailed
				w.Owned = append(w.Owned, m)
			}
			w.Owned[1].Annotations = map[string]string{v1alpha1.AnnotationPreserve: v1alpha1.PreserveWhenFailed}
			in, err := ReadIntents(Decide(w).Set)
			if err != nil || len(in.Delete) != tc.want || len(in.Create) != tc.want {
				t.Errorf("intents %+v (%v), want %d to go and as many to come", in, err, tc.want)
			}
		})
	}
}

// A machine that was to go because it had failed stays if it recovers before it is deleted, and nothing is made in its place.
// One that was to go because it was not wanted any more goes.
func TestWhatRecoversStays(t *testing.T) {
	machine := func(phase v1alpha1.MachinePhase) *v1alpha1.Machine {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "m-uid", Labels: map[string]string{"a": "b"}}}
		m.Status.CurrentStatus.Phase = phase
		return m
	}
	for name, tc := range map[string]struct {
		phase  v1alpha1.MachinePhase
		failed bool
		want   Action
	}{
		"failed, and still has":     {v1alpha1.MachineFailed, true, Delete},
		"failed, and has recovered": {v1alpha1.MachineRunning, true, Save},
		"not wanted":                {v1alpha1.MachineRunning, false, Delete},
	} {
		t.Run(name, func(t *testing.T) {
			set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
				Name: "s", UID: "s-uid", Labels: map[string]string{v1alpha1.LabelSlot: "7"}, Finalizers: []string{v1alpha1.FinalizerName},
			}}
			set.Spec = v1alpha1.MachineSetSpec{Replicas: 1, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, Template: v1alpha1.MachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
			}}
			Intents{Next: 2, Create: []int64{1}, Delete: []Doomed{{Name: "m", UID: "m-uid", Failed: tc.failed}}}.write(set)
			w := World{Now: born, Set: set, Owned: []*v1alpha1.Machine{machine(tc.phase)}, Done: Done{Created: map[int64]bool{}}}
			v := Decide(w)
			if v.Do != tc.want {
				t.Fatalf("Do = %s, want %s", v.Do, tc.want)
			}
			if v.Do != Save {
				return
			}
			if in, err := ReadIntents(v.Set); err != nil || in.Next != 2 || !settled(in) {
				t.Errorf("intents %+v (%v), want none left", in, err)
			}
		})
	}
}

func TestNamesAreOneToOne(t *testing.T) {
	seen := map[string]int64{}
	for ordinal := range int64(200_000) {
		name := Name("set", "4a1b2c3d-0000-1111-2222-333344445555", ordinal)
		if other, ok := seen[name]; ok {
			t.Fatalf("ordinals %d and %d have the name %s", ordinal, other, name)
		}
		seen[name] = ordinal
	}
	long := Name(string(make([]byte, 100)), "u", 1)
	if len(long) > maxName {
		t.Errorf("a name of %d characters", len(long))
	}
	if got := Name("worker-z1-68598", "4a1b2c3d-0000-1111-2222-333344445555", 7); got != Name("worker-z1-68598", "4a1b2c3d-0000-1111-2222-333344445555", 7) {
		t.Errorf("the same ordinal has two names: %s", got)
	}
}

func FuzzReadIntents(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"next":3,"create":[1,2]}`, `{"next":-1}`, `{"delete":[{"name":"m","uid":"u"}]}`, "[]", "null"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		set := &v1alpha1.MachineSet{}
		set.Annotations = map[string]string{v1alpha1.AnnotationIntents: text}
		in, err := ReadIntents(set)
		if err != nil {
			return
		}
		in.write(set)
		if _, err := ReadIntents(set); err != nil {
			t.Errorf("what was read from %q cannot be read again after it was written: %v", text, err)
		}
	})
}

// Creates that the API server refuses are taken back when they are not wanted any more.
func TestRefusedCreatesAreWithdrawn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(t)
		c.set.Finalizers = []string{v1alpha1.FinalizerName}
		asked, wanted := rapid.IntRange(1, 20).Draw(t, "asked"), rapid.IntRange(0, 20).Draw(t, "wanted")
		in := Intents{Next: int64(asked)}
		for o := range asked {
			in.Create = append(in.Create, int64(o))
		}
		in.write(c.set)
		c.scale(wanted)
		w := c.observe(true)
		w.Done.CreateError = "no"
		w.Live = &Live{}
		v := Decide(w)
		if wanted == asked {
			if v.Do != Rest {
				t.Fatalf("Do = %s", v.Do)
			}
			return
		}
		out, err := ReadIntents(v.Set)
		if err != nil || v.Do != Save || len(out.Create) != wanted || out.Next < in.Next {
			t.Fatalf("Do = %s, intents %+v, %v; %d were asked for and %d are wanted", v.Do, out, err, asked, wanted)
		}
	})
}
