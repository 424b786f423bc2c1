package plan

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineset/scale"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// passSet makes a pass over a set, as its controller does.
func (w *world) passSet(uid types.UID) error {
	set := w.set(uid)
	if set == nil {
		return nil
	}
	s := scale.World{
		Now: w.now, Set: set, Owned: slices.Clone(w.machines[uid]), Disruptions: w.disrupted, CountMinReady: w.countsMinReady(), Held: w.held,
		Done: scale.Done{
			Created: map[int64]bool{}, Occupied: map[int64]bool{}, Deleted: map[types.UID]bool{}, Refused: map[types.UID]bool{},
			Adopted: map[types.UID]bool{}, Updated: map[types.UID]bool{},
		},
	}
	if w.held {
		s.HeldBy = "hold that is in force"
	}
	w.looked += len(s.Owned)
	var last scale.Action
	for range mostActions {
		v := scale.Decide(s)
		if v.Do == scale.Rest {
			if v.Set != nil && !machinefacts.Same(v.Set, s.Set) {
				w.writeSet(v.Set)
			}
			w.sooner(v.Wake)
			w.setWaits[set.Name] = scale.Waits(s, v)
			return nil
		}
		w.actOnSet(&s, v)
		last = v.Do
	}
	return fmt.Errorf("%w (the last action on MachineSet %s at %s: %s)", errEndless, set.Name, w.now, last)
}

// actOnSet carries out one action. What it has created and deleted the set sees in its next pass,
// as in a fleet.
func (w *world) actOnSet(s *scale.World, v scale.Verdict) {
	switch v.Do {
	case scale.Rest:
	case scale.Save:
		s.Set = w.writeSet(v.Set)
	case scale.ListLive:
		s.MustListOrphans = false
		s.Live = &scale.Live{Owned: map[types.UID]*metav1.ObjectMeta{}, Names: map[string]bool{}}
		for _, m := range w.machines[s.Set.UID] {
			s.Live.Owned[m.UID], s.Live.Names[m.Name] = &m.ObjectMeta, true
		}
	case scale.CheckClass:
		s.MustCheckClass = false
	case scale.Create:
		for _, ordinal := range v.Ordinals {
			w.create(s.Set, ordinal)
			s.Done.Created[ordinal] = true
		}
	case scale.Delete:
		for _, m := range v.Machines {
			w.delete(m, v.Reasons[m.UID].Text())
			s.Done.Deleted[m.UID] = true
		}
	case scale.Update:
		for _, m := range v.Machines {
			s.Done.Updated[m.UID] = true
			i := slices.IndexFunc(s.Owned, func(o *v1alpha1.Machine) bool { return o.UID == m.UID })
			s.Owned[i] = w.update(m)
		}
	case scale.Adopt, scale.Release: // there are no orphans
		for _, m := range v.Machines {
			s.Done.Adopted[m.UID] = true
			w.drop(m.UID)
			delete(w.next, m.UID)
			w.leaves(m)
			w.note(Step{Do: Release, Name: m.Name, Set: s.Set.Name, Why: "its labels do not match the selector"})
		}
		s.Owned = slices.Clone(w.machines[s.Set.UID])
		s.Live = nil
	}
}

// create creates a machine.
func (w *world) create(set *v1alpha1.MachineSet, ordinal int64) {
	m := scale.NewMachine(set, ordinal)
	m.UID, m.CreationTimestamp = types.UID("machine-"+m.Name), metav1.NewTime(w.now)
	metav1.SetMetaDataLabel(&m.ObjectMeta, v1alpha1.LabelSlot, set.Labels[v1alpha1.LabelSlot])
	w.isNew[m.UID] = true
	m = w.write(m)
	w.enters(m, zoneOf(m, nil, w.classes), false)
	w.note(Step{Do: CreateMachine, Name: m.Name, Set: set.Name, Zone: w.zone(m), IsNew: true})
	if w.lacksClass(m) {
		return
	}
	w.getsVM(m)
	call := w.in.Durations.Create.Draw(w.number, "create", m.Name, 0)
	w.next[m.UID] = due{w.now.Add(call), vmExists}
}

// delete begins the deletion of a machine.
func (w *world) delete(m *v1alpha1.Machine, why string) {
	m = m.DeepCopy()
	now := metav1.NewTime(w.now)
	m.DeletionTimestamp = &now
	m = w.setPhase(m, v1alpha1.MachineTerminating)
	w.next[m.UID] = due{w.later(w.now.Add(w.deletion(m))), vmIsGone}
	w.note(Step{Do: DeleteMachine, Name: m.Name, Set: w.setName(m), Zone: w.zone(m), Why: strings.TrimSpace(why), IsNew: w.isNew[m.UID]})
	w.deleted[m.UID] = true
}

// update writes a machine.
func (w *world) update(m *v1alpha1.Machine) *v1alpha1.Machine {
	m = w.write(m.DeepCopy())
	w.note(Step{Do: UpdateMachine, Name: m.Name, Set: w.setName(m), Zone: w.zone(m), Why: "it follows its MachineSet in what needs no new VM"})
	return m
}
