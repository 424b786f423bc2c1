package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// record has the results of a run.
type record struct {
	steps   []Step
	blocked []BlockedDrain
	// waits says why the rollout waits, as its last pass reports it.
	waits string
	// setWaits says why each set waits, by its name.
	setWaits map[string]string
	// isTimed reports whether all durations that were drawn are known.
	isTimed bool
	// looked counts machines that passes have looked at.
	looked int

	exist, before    int // machines
	vmChanges        []VMChange
	least, available int // available machines; the least is -1 before the first moment
	zoneOfMachine    map[types.UID]string
	hasVM            map[types.UID]bool // machines of which a VM exists, or is being created
	isNew            map[types.UID]bool // machines that were created
	deleted          map[types.UID]bool
	updated          map[types.UID]bool // in place
}

func newRecord() record {
	return record{
		isTimed: true, least: -1, setWaits: map[string]string{}, zoneOfMachine: map[types.UID]string{},
		hasVM: map[types.UID]bool{}, isNew: map[types.UID]bool{},
		deleted: map[types.UID]bool{}, updated: map[types.UID]bool{},
	}
}

// zoneOf returns the zone of a machine: that of its Node, its template, or else its class; "" if it
// is not known.
func zoneOf(m *v1alpha1.Machine, node *corev1.Node, classes map[string]*v1alpha1.MachineClass) string {
	zone := m.Spec.NodeTemplateSpec.Labels[corev1.LabelTopologyZone]
	if node != nil {
		zone = cmp.Or(node.Labels[corev1.LabelTopologyZone], zone)
	}
	if class := classes[m.Spec.Class.Name]; zone == "" && class != nil {
		zone = view.ZoneOfClass(class)
	}
	return zone
}

// enters counts a machine that exists from now on.
func (w *world) enters(m *v1alpha1.Machine, zone string, existed bool) {
	w.zoneOfMachine[m.UID] = zone
	w.exist++
	if !existed {
		return
	}
	w.before++
	if m.Spec.ProviderID != "" {
		w.hasVM[m.UID] = true
		w.vmChanges = append(w.vmChanges, VMChange{Zone: zone, By: 1, Existed: true})
	}
}

// getsVM counts the VM of a machine, once. A VM counts from the call that creates it.
func (w *world) getsVM(m *v1alpha1.Machine) {
	if w.hasVM[m.UID] {
		return
	}
	w.hasVM[m.UID] = true
	w.vmChanges = append(w.vmChanges, VMChange{After: w.now.Sub(w.begun), Zone: w.zone(m), By: 1})
}

// leaves counts a machine that is gone, with its VM if it has one.
func (w *world) leaves(m *v1alpha1.Machine) {
	w.exist--
	if w.hasVM[m.UID] {
		w.vmChanges = append(w.vmChanges, VMChange{After: w.now.Sub(w.begun), Zone: w.zone(m), By: -1})
	}
}

// lacksClass reports whether a machine has no VM and gets none, as its class does not exist.
func (w *world) lacksClass(m *v1alpha1.Machine) bool {
	return m.Spec.ProviderID == "" && w.classes != nil && w.classes[m.Spec.Class.Name] == nil
}

// moves records a machine that was updated in place and has another set.
func (w *world) moves(m *v1alpha1.Machine) { w.updated[m.UID] = true }

func (w *world) zone(m *v1alpha1.Machine) string { return w.zoneOfMachine[m.UID] }

// note records a step that is taken now.
func (w *world) note(s Step) {
	s.After.Duration = w.now.Sub(w.begun)
	w.steps = append(w.steps, s)
	w.changed = w.now
	w.version++
}

// measure counts the machines that are available now.
func (w *world) measure() {
	available := 0
	for _, set := range w.sets {
		minReady := machinefacts.MinReady(set, w.countsMinReady())
		for _, m := range w.machines[set.UID] {
			if is, _ := machinefacts.Available(m, minReady, w.now); is && m.DeletionTimestamp == nil && !w.isShut(m) {
				available++
			}
		}
	}
	if w.least < 0 || available < w.least {
		w.least = available
	}
	if available != w.available && w.now.After(w.begun) { // also when minReadySeconds are over
		w.changed = w.now
	}
	w.available = available
}

// took returns how long the run has taken until its last step.
func (w *world) took() time.Duration { return w.changed.Sub(w.begun) }

// plan returns what the run has shown.
func (w *world) plan() Plan {
	p := Plan{
		Object: view.Object{Kind: view.KindDeployment, Namespace: w.deployment.Namespace, Name: w.deployment.Name},
		Steps:  w.steps, Blocked: w.blocked, Ends: w.isDone(),
	}
	if p.Steps == nil {
		p.Steps = []Step{}
	}
	p.Machines = Machines{Before: w.before, After: w.exist, Least: max(w.least, 0)}
	var zones []Zone
	p.VMs, p.Machines.Most, zones = CountVMs(w.vmChanges)
	p.VMChanges = w.vmChanges
	for _, m := range w.machinesByName() {
		switch {
		case w.isNew[m.UID] || m.DeletionTimestamp != nil:
		case w.updated[m.UID]:
			p.Machines.Updated++
		default:
			p.Machines.Kept++
		}
	}
	p.Machines.Created, p.Machines.Deleted = len(w.isNew), len(w.deleted)
	for uid := range w.isNew {
		if !w.hasVM[uid] {
			p.Machines.WithoutVM++
		}
	}
	replicas := w.deployment.Spec.Replicas
	if w.change.Before != nil {
		replicas = max(replicas, w.change.Before.Spec.Replicas)
	}
	p.Machines.Surge = max(p.Machines.Most-int(replicas), 0)
	for _, z := range zones {
		if z.Before != z.After || z.Most != z.Before || len(w.isNew)+len(w.deleted) > 0 {
			p.Zones = append(p.Zones, z)
		}
	}
	if !p.Ends {
		p.Waits = w.whatFor()
	}
	return p
}

// whatFor returns what the change waits for when nothing happens any more.
func (w *world) whatFor() string {
	var all []string
	add := func(text string) {
		if text != "" && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	for _, set := range w.sets {
		if waits := w.setWaits[set.Name]; waits != "" {
			add(waits + " (MachineSet " + set.Name + ")")
		}
	}
	if len(all) == 0 {
		add(w.waits)
	}
	for _, m := range w.machinesByName() {
		if !machinefacts.IsReady(m) && m.DeletionTimestamp == nil {
			name := "machine " + m.Name
			if w.isNew[m.UID] {
				name = "a new machine of MachineSet " + w.setName(m)
			}
			add(name + ", which is " + view.StateOf(m) + " and stays so in the simulation")
			break
		}
	}
	return cmp.Or(strings.Join(all, "; "), "something that is not simulated")
}
