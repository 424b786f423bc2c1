package machinesim

import (
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineset/scale"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// disruptions are those on the root of a slot, as a cache shows them.
func (p *process) disruptions(slot int) []disruption.Disruption {
	for _, d := range catchUp(p.world, p.deployments, &p.shown[slot].deployments) {
		if slotOf(d) == slot {
			disruptions, err := disruption.ReadDisruptions(d)
			if err != nil {
				p.Fatal(err)
			}
			return disruptions
		}
	}
	return nil
}

// reconcileSet runs one pass over the set of a slot.
func (p *process) reconcileSet(slot int) {
	c := p.shown[slot]
	w := scale.World{Now: p.clock(), Disruptions: p.disruptions(slot), Done: scale.Done{
		Created: map[int64]bool{}, Occupied: map[int64]bool{}, Deleted: map[types.UID]bool{}, Refused: map[types.UID]bool{},
		Adopted: map[types.UID]bool{},
	}}
	for _, set := range sorted(catchUp(p.world, p.sets, &c.sets)) {
		if slotOf(set) == slot {
			w.Set = set
		}
	}
	for _, m := range sorted(catchUp(p.world, p.machines, &c.machines)) {
		if slotOf(m) == slot {
			w.Owned = append(w.Owned, m)
		}
	}
	w.Held = p.setsHeld(w.Set)
	for range 32 {
		v := scale.Decide(w)
		switch v.Do {
		case scale.Rest:
			return // its status is not simulated
		case scale.Save:
			_, goOn := p.write(func() bool {
				stored, ok := p.sets.update(v.Set)
				if ok {
					w.Set = stored
				}
				return ok
			})
			if !goOn {
				return
			}
		case scale.ListLive:
			w.Live = &scale.Live{Owned: map[types.UID]*metav1.ObjectMeta{}, Names: map[string]bool{}}
			for _, m := range p.machines.now() {
				if slotOf(m) == slot {
					w.Live.Owned[m.UID], w.Live.Names[m.Name] = &m.ObjectMeta, true
				}
			}
		case scale.Update, scale.CheckClass:
			p.Fatalf("unexpected %s", v.Do)
		case scale.Create:
			for _, ordinal := range v.Ordinals {
				if _, goOn := p.write(func() bool { p.create(&w, ordinal); return true }); !goOn {
					return
				}
			}
		case scale.Delete:
			for _, m := range v.Machines {
				kept := p.mustKeep()
				_, goOn := p.write(func() bool {
					if p.machines.delete(m, p.now) {
						p.judge("a set deletes", m.UID, kept)
						w.Done.Deleted[m.UID] = true
					} else {
						w.Done.Refused[m.UID] = true
					}
					return true
				})
				if !goOn {
					return
				}
			}
		case scale.Adopt, scale.Release:
			p.Fatalf("unexpected %s", v.Do)
		}
	}
	p.Fatal("a pass over a set did not end after 32 actions")
}

// create creates a machine. One that has existed before is not created once more by a late write:
// docs/limits.md describes that, and the machine too many that it creates is not part of these
// tests.
func (p *process) create(w *scale.World, ordinal int64) {
	name := machinefacts.Name(w.Set.Name, w.Set.UID, ordinal)
	if _, exists := p.machines.now()[name]; p.created[name] && !exists {
		return
	}
	p.created[name] = true
	p.serial++
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "n", UID: types.UID("machine-" + strconv.Itoa(p.serial)),
			Labels:      map[string]string{v1alpha1.LabelSlot: w.Set.Labels[v1alpha1.LabelSlot]},
			Annotations: map[string]string{v1alpha1.AnnotationOrdinal: strconv.FormatInt(ordinal, 10)},
			Finalizers:  []string{v1alpha1.FinalizerName}, CreationTimestamp: metav1.NewTime(p.now),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.Set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))},
		},
		Spec: w.Set.Spec.Template.Spec,
	}
	maps.Copy(m.Labels, w.Set.Spec.Template.Labels)
	maps.Copy(m.Annotations, w.Set.Spec.Template.Annotations)
	if p.machines.create(m) || p.machines.now()[m.Name].Annotations[v1alpha1.AnnotationOrdinal] == m.Annotations[v1alpha1.AnnotationOrdinal] {
		w.Done.Created[ordinal] = true
	} else {
		w.Done.Occupied[ordinal] = true
	}
}

// reconcileMachine runs one pass over a machine.
func (p *process) reconcileMachine(slot int, name string) {
	m, known := catchUp(p.world, p.machines, &p.shown[slot].machines)[name]
	if !known {
		return
	}
	w := lifecycle.World{
		Now: p.clock(), Limits: p.limitsOfMachines(), Machine: m,
		Class:  lifecycle.ClassFact{Class: &v1alpha1.MachineClass{}, HasFinalizers: true},
		Secret: lifecycle.SecretFact{Read: true, UserData: []byte("boot")},
		Proven: "cloud:///" + string(m.UID), // its cloud never answers wrongly
	}
	if disruption.Allows(p.disruptions(slot), m) {
		w.Disruption = lifecycle.DisruptionAllowed
	}
	w.Reach = p.reach()
	p.look(&w)
	for range 32 {
		v := lifecycle.Decide(w)
		if v.Machine != nil && !p.save(&w, v.Machine) {
			return
		}
		if v.Do == lifecycle.Rest || !p.act(&w, v.Do) {
			return
		}
	}
	p.Fatal("a pass over a machine did not end after 32 actions")
}

// look puts the cached Node into the world. Nodes change so seldom here that only cached and live
// reads are distinguished.
func (p *process) look(w *lifecycle.World) {
	v := p.vmOf(w.Machine)
	if v == nil || v.node == nil || lifecycle.NodeName(w.Machine) == "" {
		return
	}
	w.Node = lifecycle.NodeFact{State: lifecycle.NodePresent, Node: v.node}
	if v.node.Labels[v1alpha1.LabelSlot] == "" {
		w.Node = lifecycle.NodeFact{State: lifecycle.NodeNamed}
	}
}

func (p *process) save(w *lifecycle.World, desired *v1alpha1.Machine) bool {
	before := w.Machine.Status.CurrentStatus.Phase
	if equalObjects(w.Machine, desired) {
		return true
	}
	desired = desired.DeepCopy()
	desired.Status.CurrentStatus.LastUpdateTime = desired.Status.CurrentStatus.LastUpdateTime.Rfc3339Copy() // as on the wire
	_, goOn := p.write(func() bool {
		stored, ok := p.machines.update(desired)
		if ok {
			w.Machine = stored
			if stored.Status.CurrentStatus.Phase == v1alpha1.MachineFailed && before != v1alpha1.MachineFailed {
				p.failedMachines++
				p.check()
			}
		}
		return ok
	})
	return goOn
}

// act carries out one action, and reports whether the pass continues.
func (p *process) act(w *lifecycle.World, action lifecycle.Action) bool {
	v := p.vmOf(w.Machine)
	if p.cut == target && needsTarget(action) {
		return false
	}
	switch action {
	case lifecycle.Rest, lifecycle.Save:
	case lifecycle.ReadSecret, lifecycle.AddFinalizers, lifecycle.DeleteMachine, lifecycle.PatchNode,
		lifecycle.DrainPreserved, lifecycle.DrainForUpdate,
		lifecycle.FindNodeClaims, lifecycle.FindVMClaims, lifecycle.ReadConfig, lifecycle.AskCloud:
		p.Fatalf("unexpected %s", action)
	case lifecycle.FindVM:
		w.VM = lifecycle.VMFact{State: lifecycle.VMAbsent}
		if v != nil {
			w.VM = lifecycle.VMFact{
				State: lifecycle.VMPresent, VM: driver.VM{ProviderID: "cloud:///" + string(w.Machine.UID), NodeName: w.Machine.Name},
			}
		}
	case lifecycle.CheckFields:
		w.Class.Fields.Read = true
	case lifecycle.CreateToken, lifecycle.ProlongToken:
		w.Token = lifecycle.TokenPresent
	case lifecycle.DropToken:
		w.Token = lifecycle.TokenAbsent
	case lifecycle.CreateVM:
		if v == nil {
			p.vms[w.Machine.UID] = &vm{machine: w.Machine.Name, boots: p.now.Add(bootTime)}
		}
		w.VM = lifecycle.VMFact{
			State: lifecycle.VMUninitialized, VM: driver.VM{ProviderID: "cloud:///" + string(w.Machine.UID), NodeName: w.Machine.Name},
		}
	case lifecycle.InitializeVM:
		w.VM.State = lifecycle.VMPresent
	case lifecycle.DeleteVM:
		delete(p.vms, w.Machine.UID)
		w.VM = lifecycle.VMFact{State: lifecycle.VMAbsent, Gone: true}
	case lifecycle.FindNode:
		w.Node = lifecycle.NodeFact{State: lifecycle.NodeAbsent}
		if v != nil && v.node != nil {
			w.Node = lifecycle.NodeFact{State: lifecycle.NodePresent, Node: v.node, Live: true}
		}
	case lifecycle.ClaimNode:
		v.node = v.node.DeepCopy()
		v.node.Finalizers = []string{v1alpha1.NodeFinalizerName}
		v.node.Labels[v1alpha1.LabelMachineName], v.node.Labels[v1alpha1.LabelSlot] = w.Machine.Name, w.Machine.Labels[v1alpha1.LabelSlot]
		metav1.SetMetaDataAnnotation(&v.node.ObjectMeta, v1alpha1.AnnotationMachine, v1alpha1.RefOf(w.Machine).String())
		w.Node.Node = v.node
	case lifecycle.SetTerminating:
		v.node = v.node.DeepCopy()
		v.node.Status.Conditions = append(v.node.Status.Conditions, corev1.NodeCondition{
			Type: v1alpha1.NodeTerminating, Status: corev1.ConditionTrue,
		})
		w.Node.Node = v.node
	case lifecycle.DrainNode: // its Nodes have no pods
		w.Drain.State = drain.Drained
	case lifecycle.DeleteNode:
		w.Node = lifecycle.NodeFact{State: lifecycle.NodeAbsent}
	default:
		p.Fatalf("unexpected %s", action)
	}
	w.Now = p.clock()
	return !p.chance(40)
}
