package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// passDeployment makes a pass over the deployment, as its controller does. Its caches are never
// late.
func (w *world) passDeployment() error {
	r := rollout.World{
		Now: w.now, Deployment: w.deployment, Owned: slices.Clone(w.sets), Machines: w.seen(), Confirmed: true,
		CountMinReady:      w.countsMinReady(),
		NoComponentsTaint:  machinefacts.OmitsComponentsTaint(w.deployment, w.in.Settings.NoComponentsTaint),
		KeepFromAutoscaler: w.in.Settings.KeepFromAutoscaler, Nodes: w.nodesOfRollout(),
		Done: rollout.Done{Moved: map[types.UID]bool{}, Deleted: map[types.UID]bool{}},
	}
	var last rollout.Action
	for range mostActions {
		v := rollout.Decide(r)
		if v.Do == rollout.Rest {
			v.Waiting = rollout.Waits(r.Deployment, r.Owned, v)
			w.waits = v.Waiting
			if v.Deployment != nil && !machinefacts.Same(v.Deployment, r.Deployment) {
				w.writeDeployment(v.Deployment)
			}
			w.sooner(v.Wake)
			return nil
		}
		w.actOnDeployment(&r, v)
		last = v.Do
	}
	return fmt.Errorf("%w (the last action on MachineDeployment %s at %s: %s)", errEndless, w.deployment.Name, w.now, last)
}

// countsMinReady reports whether minReadySeconds applies.
func (w *world) countsMinReady() bool {
	return machinefacts.CountsMinReady(w.deployment, w.in.Settings.CountMinReady)
}

// seen returns the machines of all sets.
func (w *world) seen() map[types.UID][]*v1alpha1.Machine {
	for _, all := range w.machines {
		w.looked += len(all)
	}
	return maps.Clone(w.machines)
}

// nodesOfRollout returns the Nodes of machines that are updated in place.
func (w *world) nodesOfRollout() map[string]*corev1.Node {
	if !rollout.IsInPlace(w.deployment) {
		return map[string]*corev1.Node{}
	}
	return maps.Clone(w.nodes)
}

func (w *world) writeDeployment(d *v1alpha1.MachineDeployment) *v1alpha1.MachineDeployment {
	d = d.DeepCopy()
	d.ResourceVersion = w.written()
	if !machinefacts.Same(w.deployment.Spec, d.Spec) { // a rollback
		d.Generation++
		w.changed = w.now
	}
	w.deployment = d
	return d
}

// actOnDeployment carries out one action.
func (w *world) actOnDeployment(r *rollout.World, v rollout.Verdict) {
	switch v.Do {
	case rollout.Rest:
	case rollout.Save:
		r.Deployment, r.Done.Collided = w.writeDeployment(v.Deployment), false
	case rollout.ListSets:
		r.LiveSets = map[types.UID]bool{}
		for _, set := range w.sets {
			r.LiveSets[set.UID] = true
		}
	case rollout.ReadLive:
		r.Deployment, r.Live = w.deployment, w.live()
	case rollout.Mark:
		w.mark(r, v.Machines)
	case rollout.WriteNodes:
		for _, node := range v.Nodes {
			w.writeNode(node.DeepCopy())
			r.Nodes[node.Name] = w.nodes[node.Name]
		}
	case rollout.WriteMachines:
		r.Live = nil
		for _, m := range v.Machines {
			w.moves(w.write(m.DeepCopy()))
		}
		r.Machines = w.seen()
	case rollout.Adopt, rollout.Release: // there are no orphans
		for _, set := range v.Sets {
			r.Done.Moved[set.UID] = true
			w.release(set)
		}
		r.Owned = slices.Clone(w.sets)
	case rollout.Create:
		w.createSet(r, v.Sets[0])
	case rollout.Update:
		w.resize(r, v.Sets)
	case rollout.Delete:
		for _, set := range v.Sets {
			r.Done.Deleted[set.UID] = true
			w.deleteSet(set)
		}
		r.Owned = slices.Clone(w.sets)
	}
}

// live returns what a list of the API server returns.
func (w *world) live() *rollout.Live {
	live := &rollout.Live{Machines: map[types.UID][]*metav1.ObjectMeta{}}
	for set, all := range w.machines {
		for _, m := range all {
			live.Machines[set] = append(live.Machines[set], m.ObjectMeta.DeepCopy())
		}
	}
	return live
}

// resize writes sets.
func (w *world) resize(r *rollout.World, sets []*v1alpha1.MachineSet) {
	for _, set := range sets {
		if is := w.set(set.UID); is != nil && is.Spec.Replicas != set.Spec.Replicas {
			w.changed = w.now
		}
		r.Wrote(w.writeSet(set))
	}
	r.Machines = w.seen()
}

// mark writes the metadata of machines that the autoscaler has named.
func (w *world) mark(r *rollout.World, desired []*v1alpha1.Machine) {
	for _, m := range desired {
		is := w.find(m.UID)
		if is == nil {
			continue
		}
		is = is.DeepCopy()
		is.Labels, is.Annotations = m.Labels, m.Annotations
		is = w.write(is)
		set := metav1.GetControllerOfNoCopy(is).UID
		for i, live := range r.Live.Machines[set] {
			if live.UID == is.UID {
				r.Live.Machines[set][i] = is.ObjectMeta.DeepCopy()
			}
		}
	}
	r.Machines = w.seen()
}

// createSet creates a set, or finds that its name is taken.
func (w *world) createSet(r *rollout.World, set *v1alpha1.MachineSet) {
	if slices.ContainsFunc(w.in.Snapshot.Sets, func(s *v1alpha1.MachineSet) bool {
		return s.Namespace == set.Namespace && s.Name == set.Name
	}) {
		r.Done.Collided = true
		return
	}
	set = set.DeepCopy()
	set.UID, set.CreationTimestamp, set.Generation = types.UID("set-"+set.Name), metav1.NewTime(w.now), 1
	metav1.SetMetaDataLabel(&set.ObjectMeta, v1alpha1.LabelSlot, w.deployment.Labels[v1alpha1.LabelSlot])
	set = w.writeSet(set)
	r.Owned = append(r.Owned, set)
	w.note(Step{Do: CreateSet, Name: set.Name, IsNew: true, Why: "no MachineSet has the new template"})
}

// deleteSet deletes a set that has no machines.
func (w *world) deleteSet(set *v1alpha1.MachineSet) {
	w.removeSet(set.UID)
	w.note(Step{Do: DeleteSet, Name: set.Name, Why: "it is beyond spec.revisionHistoryLimit"})
}

// release lets a set go with its machines.
func (w *world) release(set *v1alpha1.MachineSet) {
	var names []string
	for _, m := range w.machines[set.UID] {
		names = append(names, m.Name)
		delete(w.next, m.UID)
		w.leaves(m)
	}
	delete(w.machines, set.UID)
	w.removeSet(set.UID)
	w.note(Step{
		Do: Release, Name: set.Name, Why: "its labels do not match spec.selector; it keeps its machines: " + strings.Join(names, ", "),
	})
}
