package machinesim

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineset/scale"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// newest returns the newer one of the cached and the last written version of an object.
func newest[T object[T]](r *rolling, cached T) T {
	if own, ok := r.shows[cached.GetName()].(T); ok && own.GetUID() == cached.GetUID() {
		a, _ := strconv.Atoi(own.GetResourceVersion())
		b, _ := strconv.Atoi(cached.GetResourceVersion())
		if a > b {
			return own
		}
	}
	return cached
}

// put writes an object, and remembers what was written.
func put[T object[T]](r *rolling, s *store[T], desired T) (stored T, goOn bool) {
	if r.delays != nil && r.delays(desired) {
		r.late = append(r.late, func() { s.update(desired) })
		return stored, false
	}
	_, goOn = r.owner.write(func() (ok bool) {
		owner := r.owner
		if stored, ok = s.update(desired); ok && owner == r.owner {
			r.shows[desired.GetName()] = stored
		}
		return ok
	})
	return stored, goOn
}

// passDeployment runs one pass over the deployment.
func (r *rolling) passDeployment() {
	c := r.owner.shown[0]
	cached, known := catchUp(r.world, r.deployments, &c.deployments)[rolled]
	if !known {
		return
	}
	d := newest(r, cached)
	w := rollout.World{
		Now: r.owner.clock(), Deployment: d, KeepFromAutoscaler: true,
		Done: rollout.Done{Moved: map[types.UID]bool{}, Deleted: map[types.UID]bool{}},
	}
	for _, set := range sorted(catchUp(r.world, r.sets, &c.sets)) {
		w.Owned = append(w.Owned, newest(r, set))
		delete(r.unseen, set.UID)
	}
	w.Confirmed = r.unseen != nil && len(r.unseen) == 0
	r.observeMachines(&w)
	w.NoTarget, w.Nodes = !r.inPlace, map[string]*corev1.Node{}
	for _, node := range sorted(catchUp(r.world, r.nodes, &c.nodes)) {
		w.Nodes[node.Name] = newest(r, node)
	}
	for range 32 {
		v := rollout.Decide(w)
		if v.Do == rollout.Rest {
			if v.Deployment != nil && !apiequality.Semantic.DeepEqual(v.Deployment, w.Deployment) {
				put(r, r.deployments, v.Deployment)
			}
			return
		}
		if !r.actOnDeployment(&w, v) {
			return
		}
	}
	r.Fatalf("seed %d: a pass over a deployment did not end after 32 actions:\n%s", r.seed, r.tale())
}

// observeMachines collects the cached machines.
func (r *rolling) observeMachines(w *rollout.World) {
	w.Machines = map[types.UID][]*v1alpha1.Machine{}
	for _, m := range sorted(catchUp(r.world, r.machines, &r.owner.shown[0].machines)) {
		m = newest(r, m)
		set := metav1.GetControllerOfNoCopy(m).UID
		w.Machines[set] = append(w.Machines[set], m)
	}
}

// actOnDeployment carries out one action, and reports whether the pass continues.
func (r *rolling) actOnDeployment(w *rollout.World, v rollout.Verdict) (goOn bool) {
	switch v.Do {
	case rollout.Save:
		stored, goOn := put(r, r.deployments, v.Deployment)
		if goOn {
			w.Deployment, w.Done.Collided = stored, false
		}
		return goOn
	case rollout.ListSets:
		w.LiveSets = map[types.UID]bool{}
		for _, set := range r.sets.now() {
			w.LiveSets[set.UID] = true
		}
		r.unseen = maps.Clone(w.LiveSets)
		for _, set := range w.Owned {
			if !w.LiveSets[set.UID] {
				r.unseen = nil // the cache is late
			}
			delete(r.unseen, set.UID)
		}
	case rollout.ReadLive:
		r.readLive(w)
	case rollout.Mark:
		return r.writeMarks(w, v.Machines)
	case rollout.WriteNodes:
		return r.writeNodes(w, v.Nodes)
	case rollout.WriteMachines:
		return r.writeMachines(w, v.Machines)
	case rollout.Create:
		return r.createSet(w, v.Sets[0])
	case rollout.Update:
		for _, set := range v.Sets {
			if i := slices.IndexFunc(w.Owned, func(s *v1alpha1.MachineSet) bool {
				return s.UID == set.UID
			}); set.Spec.Replicas != w.Owned[i].Spec.Replicas {
				set = r.predict(set, rollout.IsReplaced(w.Deployment, w.Owned[i], set))
			}
			stored, goOn := put(r, r.sets, set)
			if !goOn {
				return false
			}
			w.Wrote(stored)
		}
		r.observeMachines(w)
	case rollout.Delete:
		for _, set := range v.Sets {
			if _, goOn := r.owner.write(func() bool { return r.sets.delete(set, r.now) }); !goOn {
				return false
			}
			w.Done.Deleted[set.UID] = true
		}
	case rollout.Rest, rollout.Adopt, rollout.Release:
		r.Fatalf("unexpected %s", v.Do)
	}
	return !r.chance(100)
}

// readLive reads the deployment and its machines from the API server.
func (r *rolling) readLive(w *rollout.World) {
	w.Deployment = r.deployment()
	r.shows[rolled] = w.Deployment
	w.Live = &rollout.Live{Machines: map[types.UID][]*metav1.ObjectMeta{}}
	for _, m := range sorted(r.machines.now()) {
		set := metav1.GetControllerOfNoCopy(m).UID
		w.Live.Machines[set] = append(w.Live.Machines[set], m.ObjectMeta.DeepCopy())
	}
}

// writeMarks writes the metadata of machines. When one has changed since it was read, or was
// deleted, all are read again.
func (r *rolling) writeMarks(w *rollout.World, desired []*v1alpha1.Machine) (goOn bool) {
	for _, m := range desired {
		refused := false
		_, goOn := r.owner.write(func() bool {
			stored, ok := r.annotate(m)
			refused = !ok
			if machines := w.Live.Machines[metav1.GetControllerOfNoCopy(m).UID]; ok {
				i := slices.IndexFunc(machines, func(o *metav1.ObjectMeta) bool { return o.UID == m.UID })
				machines[i] = &stored.ObjectMeta
			}
			return true
		})
		if !goOn || r.chance(30) {
			return false
		}
		if refused {
			w.Live = nil
			return true
		}
	}
	return true
}

// annotate writes the annotations of a machine, if it has not changed since it was read.
func (r *rolling) annotate(desired *v1alpha1.Machine) (stored *v1alpha1.Machine, ok bool) {
	is, exists := r.machines.now()[desired.Name]
	if !exists {
		return nil, false
	}
	is = is.DeepCopy()
	is.Annotations, is.ResourceVersion, is.UID = desired.Annotations, desired.ResourceVersion, desired.UID
	return r.machines.update(is)
}

func (r *rolling) createSet(w *rollout.World, set *v1alpha1.MachineSet) (goOn bool) {
	set = set.DeepCopy()
	set.CreationTimestamp, set.Labels[v1alpha1.LabelSlot] = metav1.NewTime(r.now), "0"
	_, goOn = r.owner.write(func() bool {
		set.UID = types.UID("set-" + r.next())
		r.sets.create(set)
		return true
	})
	if !goOn {
		return false
	}
	is := r.sets.now()[set.Name]
	if !rollout.IsNewSet(w.Deployment, is) {
		w.Done.Collided = true
		return true
	}
	w.Owned = append(w.Owned, is)
	if r.unseen != nil {
		r.unseen[is.UID] = true
	}
	return true
}

// passSet runs one pass over a set.
func (r *rolling) passSet(name string) {
	c := r.owner.shown[0]
	cached, known := catchUp(r.world, r.sets, &c.sets)[name]
	if !known {
		return
	}
	w := r.observeSet(newest(r, cached))
	for range 32 {
		v := scale.Decide(w)
		if v.Do == scale.Rest {
			if v.Set != nil && !apiequality.Semantic.DeepEqual(v.Set, w.Set) {
				put(r, r.sets, v.Set)
			}
			return
		}
		if !r.actOnSet(&w, v) {
			return
		}
	}
	r.Fatalf("seed %d: a pass over a set did not end after 32 actions:\n%s", r.seed, r.tale())
}

// observeSet returns the owner's view of a set.
func (r *rolling) observeSet(set *v1alpha1.MachineSet) scale.World {
	w := scale.World{Now: r.owner.clock(), Set: set, Done: scale.Done{
		Created: map[int64]bool{}, Occupied: map[int64]bool{}, Deleted: map[types.UID]bool{}, Refused: map[types.UID]bool{},
		Adopted: map[types.UID]bool{}, Updated: map[types.UID]bool{},
	}}
	for _, m := range sorted(catchUp(r.world, r.machines, &r.owner.shown[0].machines)) {
		if metav1.IsControlledBy(m, w.Set) {
			w.Owned = append(w.Owned, m)
		}
	}
	for _, m := range sorted(r.machines.now()) { // every failed machine may be replaced
		if m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed {
			w.Disruptions = append(w.Disruptions, disruption.Disruption{Name: m.Name, UID: m.UID, Since: m.Status.CurrentStatus.LastUpdateTime})
		}
	}
	w.Held = r.owner.setsHeld(set)
	return w
}

// predict adds to a set that is about to be written the content of its next write.
func (r *rolling) predict(set *v1alpha1.MachineSet, isReplaced bool) *v1alpha1.MachineSet {
	if !r.predicts {
		return set
	}
	w := r.observeSet(set)
	w.IsReplaced = isReplaced
	v := scale.Decide(w)
	if v.Do == scale.ListLive {
		r.listSet(&w)
		v = scale.Decide(w)
	}
	if v.Do == scale.Save {
		return v.Set
	}
	return set
}

// listSet reads the machines of a set from the API server.
func (r *rolling) listSet(w *scale.World) {
	w.Live = &scale.Live{Owned: map[types.UID]*metav1.ObjectMeta{}, Names: map[string]bool{}}
	for _, m := range r.machines.now() {
		if metav1.IsControlledBy(m, w.Set) {
			w.Live.Owned[m.UID], w.Live.Names[m.Name] = &m.ObjectMeta, true
		}
	}
}

// actOnSet carries out one action, and reports whether the pass continues.
func (r *rolling) actOnSet(w *scale.World, v scale.Verdict) (goOn bool) {
	switch v.Do {
	case scale.Save:
		stored, goOn := put(r, r.sets, v.Set)
		if goOn {
			w.Set = stored
		}
		return goOn
	case scale.ListLive:
		r.listSet(w)
	case scale.Create:
		for _, ordinal := range v.Ordinals {
			if _, goOn := r.owner.write(func() bool { r.createMachine(w, ordinal); return true }); !goOn {
				return false
			}
		}
	case scale.Delete:
		for _, m := range v.Machines {
			kept := r.mustKeep()
			_, goOn := r.owner.write(func() bool {
				if r.machines.delete(m, r.now) {
					r.judge("a set deletes", m.UID, kept)
					w.Done.Deleted[m.UID] = true
				} else {
					w.Done.Refused[m.UID] = true
				}
				return true
			})
			if !goOn {
				return false
			}
		}
	case scale.Rest, scale.Update, scale.CheckClass, scale.Adopt, scale.Release:
		r.Fatalf("unexpected %s", v.Do)
	}
	return !r.chance(100)
}

// createMachine creates a machine; the write may take effect when the machine is not wanted any
// more.
func (r *rolling) createMachine(w *scale.World, ordinal int64) {
	set, known := r.sets.now()[w.Set.Name]
	if !known {
		return
	}
	in, err := machinefacts.ReadIntents(set)
	if err != nil {
		r.Fatal(err)
	}
	name := machinefacts.Name(set.Name, set.UID, ordinal)
	if _, there := r.machines.now()[name]; !there && !slices.Contains(in.Create, ordinal) {
		r.tooLate[name] = true
	}
	r.owner.create(w, ordinal)
}
