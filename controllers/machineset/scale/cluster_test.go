package scale

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// cluster is a small model of an API server with one set, caches that lag as they like, and
// processes that die anywhere.
type cluster struct {
	t *rapid.T
	// sets and history contain all versions of the set and its machines. The caches show any one of
	// the states since the last that they have shown; of the set no older one than was written by a
	// process, which knows its own writes, and those of the process before it.
	sets              []*v1alpha1.MachineSet
	history           []map[types.UID]*v1alpha1.Machine
	shownSet, written int
	shown             int
	serial            int
	dying, held       bool
	now               time.Time

	// most and fewest are how many machines were ever wanted since the last time that all was quiet,
	// and lost is how many were taken away by others since.
	most, fewest, lost int
}

func newCluster(t *rapid.T) *cluster {
	return &cluster{t: t, dying: true, now: born, history: []map[types.UID]*v1alpha1.Machine{{}}, sets: []*v1alpha1.MachineSet{{
		ObjectMeta: metav1.ObjectMeta{
			Name: "s", Labels: map[string]string{v1alpha1.LabelSlot: "7"}, Annotations: map[string]string{},
			UID: types.UID(rapid.StringMatching(`[a-f0-9]{8}`).Draw(t, "uid")),
		},
		Spec: v1alpha1.MachineSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: v1alpha1.MachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
			},
		},
	}}}
}

// set is as it stands; nil when it is gone.
func (c *cluster) set() *v1alpha1.MachineSet { return c.sets[len(c.sets)-1] }

func (c *cluster) machines() map[types.UID]*v1alpha1.Machine { return c.history[len(c.history)-1] }

func (c *cluster) change(f func(map[types.UID]*v1alpha1.Machine)) {
	next := maps.Clone(c.machines())
	f(next)
	c.history = append(c.history, next)
}

func (c *cluster) changeMachine(uid types.UID, f func(*v1alpha1.Machine)) {
	c.change(func(all map[types.UID]*v1alpha1.Machine) {
		all[uid] = all[uid].DeepCopy()
		f(all[uid])
	})
}

// changeSet writes the set as another client.
func (c *cluster) changeSet(f func(*v1alpha1.MachineSet)) {
	set := c.set().DeepCopy()
	f(set)
	c.sets = append(c.sets, set)
	c.most, c.fewest = max(c.most, int(set.Spec.Replicas)), min(c.fewest, int(set.Spec.Replicas))
}

// standing counts the machines that are not ending, and of those how many have come from another
// set.
func (c *cluster) standing() (all, transferred int) {
	for _, m := range c.machines() {
		if m.DeletionTimestamp == nil {
			all++
			if isTransferred(World{}, m) {
				transferred++
			}
		}
	}
	return all, transferred
}

// observe advances the caches by a drawn number of events.
func (c *cluster) observe(current bool) World {
	if current {
		c.shown, c.shownSet = len(c.history)-1, len(c.sets)-1
	} else {
		c.shown = rapid.IntRange(c.shown, len(c.history)-1).Draw(c.t, "cache")
		c.shownSet = rapid.IntRange(max(c.shownSet, c.written), len(c.sets)-1).Draw(c.t, "cache of the set")
	}
	w := World{Now: c.now, Set: c.sets[c.shownSet], Held: c.held, Done: Done{
		Created: map[int64]bool{}, Occupied: map[int64]bool{}, Deleted: map[types.UID]bool{}, Refused: map[types.UID]bool{},
		Adopted: map[types.UID]bool{},
		Updated: map[types.UID]bool{},
	}}
	for _, uid := range slices.Sorted(maps.Keys(c.history[c.shown])) {
		m := c.history[c.shown][uid]
		w.Owned = append(w.Owned, m)
		if current || rapid.Bool().Draw(c.t, "disruption") { // disruptions are recorded sooner or later
			w.Disruptions = append(w.Disruptions, disruption.Disruption{UID: m.UID})
		}
	}
	return w
}

func (c *cluster) dies() bool { return c.dying && rapid.IntRange(0, 11).Draw(c.t, "dies") == 0 }

// pass runs one pass on what the caches show. Where the set is another by now, its first write is
// refused.
func (c *cluster) pass(current bool) {
	w := c.observe(current)
	for range maxActions {
		v := Decide(w)
		if c.dies() {
			return
		}
		switch v.Do {
		case Rest:
			if v.Set != nil && c.shownSet == len(c.sets)-1 {
				c.store(v.Set)
			}
			return
		case Save:
			if c.shownSet != len(c.sets)-1 {
				return // conflict
			}
			c.store(v.Set)
			if c.set() == nil {
				return
			}
			w.Set = c.set()
		case ListLive:
			w.Live = c.list()
		case Create:
			if machinefacts.CreatesNone(w.Set) {
				c.t.Fatalf("machines %v are created for a set that is frozen", v.Ordinals)
			}
			for _, ordinal := range v.Ordinals {
				if c.dies() {
					return
				}
				c.create(&w, ordinal)
			}
		case Delete:
			for _, m := range v.Machines {
				if c.held && !machinefacts.NeverRan(m) {
					c.t.Fatalf("machine %s in phase %q is deleted while deletions are held", m.Name, m.Status.CurrentStatus.Phase)
				}
				if in, err := machinefacts.ReadIntents(w.Set); err == nil && machinefacts.IsFrozen(w.Set) &&
					slices.ContainsFunc(in.Delete, func(d machinefacts.Deletion) bool { return d.UID == m.UID && d.Failed }) {
					c.t.Fatalf("machine %s is replaced in a set that is frozen", m.Name)
				}
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
		case CheckClass, Adopt, Release:
			c.t.Fatalf("unexpected %s", v.Do)
		}
	}
	c.t.Fatalf("%d actions and no end: %+v", maxActions, w.Set.Annotations)
}

// maxActions is as many as a pass may take in the controller.
const maxActions = 32

// list returns the answer of the API server.
func (c *cluster) list() *Live {
	live := &Live{Owned: map[types.UID]*metav1.ObjectMeta{}, Names: map[string]bool{}}
	for uid, m := range c.machines() {
		live.Owned[uid], live.Names[m.Name] = &m.ObjectMeta, true
	}
	return live
}

// update writes a machine, unless it has changed since the cache saw it.
func (c *cluster) update(w *World, desired *v1alpha1.Machine) {
	w.Done.Updated[desired.UID] = true
	for i, m := range w.Owned {
		if m.UID == desired.UID && c.machines()[m.UID] == m {
			c.change(func(all map[types.UID]*v1alpha1.Machine) { all[m.UID] = desired })
			w.Owned[i] = desired
		}
	}
}

// store writes the set as a process does.
func (c *cluster) store(set *v1alpha1.MachineSet) {
	if set.DeletionTimestamp != nil && len(set.Finalizers) == 0 {
		if len(c.machines()) > 0 {
			c.t.Fatalf("the set is released and %d machines are left", len(c.machines()))
		}
		set = nil
	}
	c.sets = append(c.sets, set)
	c.written, c.shownSet = len(c.sets)-1, len(c.sets)-1
}

// put adds a machine of the set.
func (c *cluster) put(m *v1alpha1.Machine) {
	c.serial++
	m.UID = types.UID(fmt.Sprintf("machine-%03d", c.serial))
	m.Labels["a"] = "b"
	m.CreationTimestamp = metav1.NewTime(born.Add(time.Duration(c.serial) * time.Second))
	c.change(func(all map[types.UID]*v1alpha1.Machine) { all[m.UID] = m })
}

func (c *cluster) create(w *World, ordinal int64) {
	name := machinefacts.Name(w.Set.Name, w.Set.UID, ordinal)
	for _, m := range c.machines() {
		if m.Name == name {
			if theirs, _ := machinefacts.Ordinal(m); theirs == ordinal {
				w.Done.Created[ordinal] = true
			} else {
				w.Done.Occupied[ordinal] = true
			}
			return
		}
	}
	c.put(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{}, Annotations: map[string]string{v1alpha1.AnnotationOrdinal: strconv.FormatInt(ordinal, 10)},
	}})
	w.Done.Created[ordinal] = true
	if all, transferred := c.standing(); all-transferred > c.most {
		c.t.Fatalf("%d machines stand, and never more than %d were wanted", all-transferred, c.most)
	}
}

func (c *cluster) delete(uid types.UID) {
	m, ok := c.machines()[uid]
	if !ok || m.DeletionTimestamp != nil {
		return
	}
	now := metav1.NewTime(born)
	c.changeMachine(uid, func(m *v1alpha1.Machine) { m.DeletionTimestamp = &now })
	if all, transferred := c.standing(); all-transferred < c.fewest-c.lost {
		c.t.Fatalf("%d machines stand, never less than %d were wanted, and %d were taken away", all-transferred, c.fewest, c.lost)
	}
}

// disturb has one thing happen to a machine.
func (c *cluster) disturb() {
	if len(c.machines()) == 0 {
		return
	}
	uid := rapid.SampledFrom(slices.Sorted(maps.Keys(c.machines()))).Draw(c.t, "machine")
	m := c.machines()[uid]
	switch {
	case m.DeletionTimestamp != nil:
		c.change(func(all map[types.UID]*v1alpha1.Machine) { delete(all, uid) })
	case m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed:
		c.changeMachine(uid, func(m *v1alpha1.Machine) { m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning })
	default:
		c.lost++
		switch rapid.IntRange(0, 3).Draw(c.t, "what") {
		case 0:
			c.changeMachine(uid, func(m *v1alpha1.Machine) { m.Status.CurrentStatus.Phase = v1alpha1.MachineFailed })
		case 1:
			c.delete(uid)
		case 2:
			c.choose(uid)
		case 3:
			c.moveOut(uid)
		}
	}
}

// choose does what the cluster-autoscaler has done about a machine that it does not want any more.
func (c *cluster) choose(uid types.UID) {
	c.serial++
	at := born.Add(time.Duration(c.serial) * time.Second).Format(time.RFC3339)
	c.changeMachine(uid, func(m *v1alpha1.Machine) {
		m.Annotations[v1alpha1.AnnotationPriority] = v1alpha1.PriorityTriggered
		m.Annotations[v1alpha1.AnnotationMarkedForDeletionTime] = at
	})
	c.changeSet(func(set *v1alpha1.MachineSet) {
		set.Spec.Replicas = max(set.Spec.Replicas-1, 0)
		set.Annotations[v1alpha1.AnnotationLastReplicaChangeByScaler] = at
	})
}

// moveOut gives a machine that was updated in place to another set.
func (c *cluster) moveOut(uid types.UID) {
	c.changeSet(func(set *v1alpha1.MachineSet) { set.Labels[v1alpha1.LabelScaleUpDisabled] = "true" })
	c.change(func(all map[types.UID]*v1alpha1.Machine) { delete(all, uid) })
	c.changeSet(func(set *v1alpha1.MachineSet) { set.Spec.Replicas = max(set.Spec.Replicas-1, 0) })
}

// moveIn gives the set a machine that was another's. It keeps its ordinal, which may be that of one
// of ours.
func (c *cluster) moveIn() {
	ordinal := rapid.Int64Range(0, 5).Draw(c.t, "ordinal")
	c.put(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Name:        fmt.Sprintf("other-%d", c.serial),
		Labels:      map[string]string{v1alpha1.LabelUpdateResult: v1alpha1.UpdateResultSuccessful},
		Annotations: map[string]string{v1alpha1.AnnotationOrdinal: strconv.FormatInt(ordinal, 10)},
	}})
}

// accept gives the set a replica for each machine that has come from another one, unless others are
// on their way: those would be too many then, as whenever fewer are wanted than before.
func (c *cluster) accept() {
	if in, err := machinefacts.ReadIntents(c.set()); err != nil || len(in.Create) > 0 {
		return
	}
	for _, uid := range slices.Sorted(maps.Keys(c.machines())) {
		if m := c.machines()[uid]; isTransferred(World{}, m) {
			if m.DeletionTimestamp == nil {
				c.changeSet(func(set *v1alpha1.MachineSet) { set.Spec.Replicas++ })
			}
			c.changeMachine(uid, func(m *v1alpha1.Machine) { delete(m.Labels, v1alpha1.LabelUpdateResult) })
		}
	}
}

func (c *cluster) scale(replicas int) {
	c.changeSet(func(set *v1alpha1.MachineSet) { set.Spec.Replicas = int32(replicas) })
}

// freeze, or end the freeze.
func (c *cluster) freeze() {
	c.changeSet(func(set *v1alpha1.MachineSet) {
		if machinefacts.CreatesNone(set) {
			delete(set.Labels, v1alpha1.LabelFreeze)
			delete(set.Labels, v1alpha1.LabelScaleUpDisabled)
			return
		}
		set.Labels[v1alpha1.LabelFreeze] = "True"
	})
}

// hold holds deletions, or ends that. All machines have joined by then.
func (c *cluster) hold() {
	c.held = !c.held
	for _, uid := range slices.Sorted(maps.Keys(c.machines())) {
		if c.machines()[uid].Status.CurrentStatus.Phase == "" {
			c.changeMachine(uid, func(m *v1alpha1.Machine) { m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning })
		}
	}
}

// quiet completes everything that has begun, and machines that have failed delay nothing any more.
func (c *cluster) quiet() {
	dying := c.dying
	c.dying = false
	c.now = c.now.Add(machinefacts.EarlyFailure)
	for range 12 {
		if c.set() == nil {
			break
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
	c.dying = dying
	if set := c.set(); set != nil {
		all, transferred := c.standing()
		c.most, c.fewest, c.lost = int(set.Spec.Replicas), min(int(set.Spec.Replicas), all-transferred), 0
		if c.held {
			c.most = max(c.most, all-transferred)
		}
		for _, m := range c.machines() {
			// While the set is frozen, or deletions are held, a failed machine is not replaced, and one that
			// is named is not deleted.
			if m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed || isChosen(&m.ObjectMeta, chosenUntil(set)) {
				c.lost++
			}
		}
	}
}
