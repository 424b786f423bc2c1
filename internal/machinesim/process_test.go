package machinesim

import (
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/nodeowner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

// process owns some of the deployments, by their slots.
type process struct {
	*world

	name  string
	dead  bool
	ahead time.Duration // of its clock
	slots []int
	// shown is the position of each cache, by slot: each was begun when the slot was acquired.
	shown      map[int]*caches
	breakers   *disruption.AllBreakers
	thresholds disruption.Thresholds // of breakers
	lastReport string
	seen       map[types.UID]bool
	servers    map[string]reach.State
	born       time.Time
	sight      sight
}

// caches are the positions of those of the kinds.
type caches struct{ deployments, sets, machines, nodes int }

func newProcess(w *world, name string) *process {
	p := &process{world: w, name: name, shown: map[int]*caches{}, seen: map[types.UID]bool{}, servers: map[string]reach.State{}, born: w.now}
	if w.wild {
		p.ahead = time.Duration(w.dice.IntN(4000)-2000) * time.Millisecond
	}
	return p
}

// allBreakers returns the circuit breakers, with the thresholds that the world has now.
func (p *process) allBreakers() *disruption.AllBreakers {
	if p.thresholds != p.limits.Thresholds {
		p.thresholds = p.limits.Thresholds
		p.breakers = disruption.NewAllBreakers(p.limits.Thresholds)
	}
	return p.breakers
}

func (p *process) clock() time.Time { return p.now.Add(p.ahead) }

// acquire acquires a slot. Its caches begin with a read that began after that.
func (p *process) acquire(slot int) {
	p.slots = append(p.slots, slot)
	p.shown[slot] = &caches{len(p.deployments.history) - 1, len(p.sets.history) - 1, len(p.machines.history) - 1, len(p.nodes.history) - 1}
}

// drop releases a slot.
func (p *process) drop(slot int) {
	p.slots = slices.DeleteFunc(p.slots, func(s int) bool { return s == slot })
	delete(p.shown, slot)
	for _, d := range p.deployments.now() {
		if slotOf(d) == slot {
			delete(p.seen, d.UID)
		}
	}
}

func slotOf(obj metav1.Object) int {
	slot, _ := strconv.Atoi(obj.GetLabels()[v1alpha1.LabelSlot])
	return slot
}

// catchUp moves a cache on: all the way, or to a random position.
func catchUp[T object[T]](w *world, s *store[T], shown *int) map[string]T {
	last := len(s.history) - 1
	if w.wild {
		last = *shown + w.dice.IntN(last-*shown+1)
	}
	*shown = last
	return s.history[last]
}

// all reconciles everything, repeatedly until nothing changes any more.
func (p *process) all() {
	if p.dead || p.cut == control { // nothing can be written, and the fence has passed
		return
	}
	for range 50 {
		before := p.versions
		p.count()
		for _, slot := range slices.Clone(p.slots) {
			p.reconcileSlot(slot)
		}
		if p.versions == before || p.wild {
			return
		}
	}
	p.Fatal("the objects still changed after the last round")
}

// reconcileSlot reconciles everything of a slot, or in a wild world one object.
func (p *process) reconcileSlot(slot int) {
	do := p.dice.IntN(4)
	if !p.wild || do == 0 {
		p.reconcileRoot(slot)
	}
	if !p.wild || do == 1 {
		p.reconcileSet(slot)
	}
	for _, m := range sorted(p.machines.now()) {
		if slotOf(m) == slot && (!p.wild || p.dice.IntN(3) == 0) {
			p.reconcileMachine(slot, m.Name)
		}
	}
}

// write sends a write, which may be lost with the process, take effect without its knowledge, or
// take effect much later. goOn reports whether the pass continues.
func (p *process) write(send func() bool) (ok, goOn bool) {
	if !p.wild {
		ok = send()
		return ok, ok
	}
	switch p.dice.IntN(30) {
	case 0: // the process dies before the write is sent
	case 1: // and after
		send()
	case 2: // and the write takes effect later
		p.late = append(p.late, func() { send() })
	default:
		ok = send()
		return ok, ok
	}
	return false, false
}

// own counts the machines of its slots.
func (p *process) own() disruption.Own {
	own := disruption.Own{}
	for _, slot := range p.slots {
		own[slot] = disruption.Counts{}
		for _, m := range p.machines.history[p.shown[slot].machines] {
			if slotOf(m) == slot {
				own[slot].Add(p.scope(), m.Namespace, disruption.Of(m, p.hasNode(m), p.clock()))
			}
		}
	}
	return own
}

// hasNode reports whether there is a Node that is bound to the machine.
func (p *process) hasNode(m *v1alpha1.Machine) bool {
	v := p.vmOf(m)
	return v != nil && v.node != nil && nodeowner.Relate(m, v.node) == nodeowner.Own
}

func (p *process) scope() disruption.Scope { return disruption.Scope{Zone: zone} }

func (p *process) reports() disruption.Reports {
	holders := make([]string, p.world.slots)
	for _, owner := range p.owners {
		for _, slot := range owner.slots {
			holders[slot] = owner.name
		}
	}
	return disruption.ParseReports(p.texts, holders)
}

func (p *process) count() {
	total, complete := disruption.Sum(p.own(), p.reports())
	p.allBreakers().Step(p.clock(), total, complete)
}

func (p *process) report() {
	p.lastReport = disruption.Report(p.name, p.own(), p.reports(), p.lastReport)
	p.texts[p.name] = p.lastReport
}

// reconcileRoot records disruptions, and the state of the circuit breaker on the deployment.
func (p *process) reconcileRoot(slot int) {
	c := p.shown[slot]
	var root *v1alpha1.MachineDeployment
	for _, d := range sorted(catchUp(p.world, p.deployments, &c.deployments)) {
		if slotOf(d) == slot {
			root = d
		}
	}
	disruptions, err := disruption.ReadDisruptions(root)
	if err != nil {
		p.Fatal(err)
	}
	w := disruption.World{Now: p.clock(), Limits: p.limits, Disruptions: disruptions, Desired: root.Spec.Replicas}
	for _, set := range sorted(catchUp(p.world, p.sets, &c.sets)) {
		if slotOf(set) == slot {
			w.Sets = append(w.Sets, set)
		}
	}
	for _, m := range sorted(catchUp(p.world, p.machines, &c.machines)) {
		if slotOf(m) == slot {
			w.Machines = append(w.Machines, disruption.Member{Machine: m, Scope: p.scope()})
		}
	}
	if !p.seen[root.UID] {
		p.seen[root.UID] = true
		if len(root.Status.Conditions) > 0 {
			p.allBreakers().Restore(p.limits.Thresholds, p.scope(), root.Namespace)
		}
	}
	w.Breakers = p.allBreakers().Snapshots().Of[p.limits.Thresholds].Snapshot
	w.Away, w.NotBefore = p.reach().Away, p.reach().Settled()
	w.Held = p.held(ignoredByHealth)
	v := disruption.Decide(w)
	if (len(v.Open) > 0) == (len(root.Status.Conditions) > 0) && !v.Changed {
		return
	}
	desired := root.DeepCopy()
	disruption.WriteDisruptions(desired, v.Disruptions)
	desired.Status.Conditions = nil
	if len(v.Open) > 0 {
		p.breakersSeen[root.Name] = true
		desired.Status.Conditions = []v1alpha1.MachineDeploymentCondition{{Type: v1alpha1.MachineDeploymentCircuitBreakerOpen}}
	}
	p.judgeDisruptions(disruptions, v.Disruptions)
	p.write(func() bool {
		_, ok := p.deployments.update(desired)
		return ok
	})
}
