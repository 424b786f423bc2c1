package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/nodeowner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// happening is an event in the life of a machine.
type happening int

const (
	vmExists happening = iota + 1
	nodeJoins
	vmIsGone
	nodeIsDrained
	nodeIsUpdated
)

// due is the next event in the life of a machine, and when it happens.
type due struct {
	at time.Time
	is happening
}

// world is the simulated cluster, with one MachineDeployment. Objects in it are never changed, but
// replaced by others.
type world struct {
	in     Input
	change Change
	number int // of the run

	begun, now time.Time
	deployment *v1alpha1.MachineDeployment
	sets       []*v1alpha1.MachineSet            // by name
	machines   map[types.UID][]*v1alpha1.Machine // by the UID of their set, in the order of names
	nodes      map[string]*corev1.Node           // of machines that may be updated in place
	pods       map[string][]*corev1.Pod          // by Node
	disrupted  []disruption.Disruption           // of the deployment
	classes    map[string]*v1alpha1.MachineClass // nil where they were not read
	next       map[types.UID]due                 // by the UID of machines
	drained    map[types.UID]bool                // machines whose Nodes are drained for an update
	held       bool                              // deletions are held
	version    int                               // of the last write
	wake       time.Time                         // when time alone changes something
	changed    time.Time                         // when a machine or a set has changed last

	record
}

// newWorld returns the world of a run in which the change has just been applied.
func newWorld(in Input, c Change, number int) *world {
	s := in.Snapshot
	w := &world{
		in: in, change: c, number: number, begun: s.Now, now: s.Now, changed: s.Now, machines: map[types.UID][]*v1alpha1.Machine{},
		nodes: map[string]*corev1.Node{}, pods: map[string][]*corev1.Pod{}, next: map[types.UID]due{}, drained: map[types.UID]bool{},
	}
	w.deployment = applied(c, s.Now)
	w.sets = w.owned(c.Before)
	w.disrupted, _ = disruption.ReadDisruptions(w.deployment) // one that cannot be read allows nothing
	for _, n := range s.Namespaces {
		w.held = w.held || n.Name == w.deployment.Namespace && view.HoldOf(n) != ""
	}
	w.held = w.held || !s.Misses(view.MissingLeases) && len(s.Leases) > 0 && view.FleetOf(s).Hold != ""
	if !s.Misses(view.MissingClasses) {
		w.classes = map[string]*v1alpha1.MachineClass{}
		for _, class := range s.Classes {
			if class.Namespace == w.deployment.Namespace {
				w.classes[class.Name] = class
			}
		}
	}
	for _, pod := range s.Pods {
		w.pods[pod.Spec.NodeName] = append(w.pods[pod.Spec.NodeName], pod)
	}
	w.record = newRecord()
	w.takeIn()
	return w
}

// applied returns the deployment as the API server has it after the change.
func applied(c Change, now time.Time) *v1alpha1.MachineDeployment {
	d := c.After.DeepCopy()
	if c.Before == nil {
		d.UID, d.Generation, d.CreationTimestamp = "plan", 1, metav1.NewTime(now)
		metav1.SetMetaDataLabel(&d.ObjectMeta, v1alpha1.LabelSlot, "0") // a session labels it within seconds
		return d
	}
	d.UID, d.ResourceVersion = c.Before.UID, "plan"
	if !machinefacts.Same(c.Before.Spec, d.Spec) {
		d.Generation = c.Before.Generation + 1
	}
	return d
}

// owned returns the sets of the deployment as it was before the change.
func (w *world) owned(before *v1alpha1.MachineDeployment) []*v1alpha1.MachineSet {
	if before == nil {
		return nil
	}
	return byName(w.in.Snapshot.SetsOf(before))
}

// takeIn adds the machines of the snapshot, with what happens to them next, and their Nodes.
func (w *world) takeIn() {
	nodes := map[string]*corev1.Node{}
	for _, node := range w.in.Snapshot.Nodes {
		nodes[node.Name] = node
	}
	for _, m := range byName(w.in.Snapshot.Machines) {
		controller := metav1.GetControllerOfNoCopy(m)
		if controller == nil || !slices.ContainsFunc(w.sets, func(s *v1alpha1.MachineSet) bool { return s.UID == controller.UID }) {
			continue
		}
		node := nodes[m.Labels[v1alpha1.LabelNode]]
		if node != nil && nodeowner.Relate(m, node) == nodeowner.Own {
			w.nodes[node.Name] = node
		}
		w.machines[controller.UID] = append(w.machines[controller.UID], m)
		w.enters(m, zoneOf(m, node, w.classes), true)
		switch phase := m.Status.CurrentStatus.Phase; {
		case m.DeletionTimestamp != nil:
			w.next[m.UID] = due{w.later(m.DeletionTimestamp.Add(w.deletion(m))), vmIsGone}
		case w.lacksClass(m):
		case phase == v1alpha1.MachinePending || phase == "":
			w.next[m.UID] = due{w.later(m.CreationTimestamp.Add(w.draws(w.in.Durations.Run, "run", m.Name, someRun))), nodeJoins}
		case phase == v1alpha1.MachineInPlaceUpdating:
			since := m.Status.CurrentStatus.LastUpdateTime
			w.next[m.UID] = due{w.later(since.Add(w.draws(w.in.Durations.Update, "update", m.Name, someUpdate))), nodeIsUpdated}
		}
	}
}

// later returns a time that is not over.
func (w *world) later(at time.Time) time.Time {
	if soon := w.now.Add(time.Second); at.Before(soon) {
		return soon
	}
	return at
}

// draws returns how long a step of a machine takes in this run.
func (w *world) draws(d Distribution, step, machine string, otherwise time.Duration) time.Duration {
	if d.Count() == 0 {
		w.isTimed = false
	}
	return d.Draw(w.number, step, machine, otherwise)
}

// errEndless is the error of a simulation that does not end.
var errEndless = errors.New("expected the simulation of the change to end, and it has not; report this with the objects of the namespace")

const (
	mostMoments = 1_000_000 // at which something happens
	mostRounds  = 1000      // of passes at a moment
	mostActions = 64        // of a pass
	// quiet is for how long nothing has changed when a change that is not done waits for something
	// else.
	quiet = time.Hour
)

// run runs the world until nothing changes any more.
func (w *world) run() error {
	for range mostMoments {
		if err := w.settle(); err != nil {
			return err
		}
		w.measure()
		at, ok := w.nextMoment()
		if !ok {
			return nil
		}
		w.now = at
		w.happen()
	}
	return errEndless
}

// settle has all controllers make passes until nothing changes any more.
func (w *world) settle() error {
	for range mostRounds {
		before := w.version
		w.wake = time.Time{}
		if err := w.passDeployment(); err != nil {
			return err
		}
		for _, set := range slices.Clone(w.sets) {
			if err := w.passSet(set.UID); err != nil {
				return err
			}
		}
		w.passNodes()
		if w.version == before {
			return nil
		}
	}
	return fmt.Errorf("%w (passes over MachineDeployment %s at %s)", errEndless, w.deployment.Name, w.now)
}

// nextMoment returns when something happens next; ok is false if nothing does.
func (w *world) nextMoment() (at time.Time, ok bool) {
	for _, d := range w.next {
		if !ok || d.at.Before(at) {
			at, ok = d.at, true
		}
	}
	if w.wake.After(w.now) && (!ok || w.wake.Before(at)) && (ok || w.wake.Sub(w.changed) < quiet && !w.isDone()) {
		return w.wake, true
	}
	return at, ok
}

// isDone reports whether the deployment has what it wants. One that is paused does not report that
// a rollout has ended.
func (w *world) isDone() bool {
	newSet, wanted := rollout.NewSet(w.deployment, w.sets), w.deployment.Spec.Replicas
	if w.deployment.Status.AvailableReplicas != wanted || w.exist != int(wanted) || newSet == nil {
		return false
	}
	_, underWay := rollout.UnderWay(w.deployment, w.sets)
	return !underWay || w.deployment.Spec.Paused && len(w.machines[newSet.UID]) == w.exist
}

// happen has everything happen that is due.
func (w *world) happen() {
	var now []types.UID
	for uid, d := range w.next {
		if !d.at.After(w.now) {
			now = append(now, uid)
		}
	}
	all := make([]*v1alpha1.Machine, 0, len(now))
	for _, uid := range now {
		if m := w.find(uid); m != nil {
			all = append(all, m)
		} else {
			delete(w.next, uid)
		}
	}
	slices.SortFunc(all, func(a, b *v1alpha1.Machine) int {
		return cmp.Or(w.next[a.UID].at.Compare(w.next[b.UID].at), cmp.Compare(a.Name, b.Name))
	})
	for _, m := range all {
		is := w.next[m.UID].is
		delete(w.next, m.UID)
		w.happens(m, is)
	}
}

// happens has one thing happen to a machine.
func (w *world) happens(m *v1alpha1.Machine, is happening) {
	switch is {
	case vmExists:
		w.setPhase(m, v1alpha1.MachinePending)
		run := w.draws(w.in.Durations.Run, "run", m.Name, someRun)
		w.next[m.UID] = due{w.later(m.CreationTimestamp.Add(run)), nodeJoins}
	case nodeJoins:
		w.getsVM(m) // one that has existed before without a VM
		w.joins(m)
	case vmIsGone:
		w.remove(m)
		w.leaves(m)
		w.note(Step{Do: Gone, Name: m.Name, Set: w.setName(m), Zone: w.zone(m)})
	case nodeIsDrained:
		w.drained[m.UID] = true
		w.version++
	case nodeIsUpdated:
		if node := w.nodes[m.Labels[v1alpha1.LabelNode]]; node != nil {
			node = node.DeepCopy()
			metav1.SetMetaDataLabel(&node.ObjectMeta, v1alpha1.LabelUpdateResult, v1alpha1.UpdateResultSuccessful)
			w.nodes[node.Name] = node
			w.note(Step{Do: UpdateNode, Name: node.Name, Set: w.setName(m), Zone: w.zone(m)})
		}
	}
}

// joins has the Node of a machine be healthy for the first time.
func (w *world) joins(m *v1alpha1.Machine) {
	m = m.DeepCopy()
	if m.Spec.ProviderID == "" {
		m.Spec.ProviderID = "plan:///" + m.Name
	}
	if m.Labels[v1alpha1.LabelNode] == "" {
		metav1.SetMetaDataLabel(&m.ObjectMeta, v1alpha1.LabelNode, m.Name)
	}
	name := m.Labels[v1alpha1.LabelNode]
	if rollout.IsInPlace(w.deployment) && w.nodes[name] == nil {
		w.nodes[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("node-" + name), Labels: map[string]string{v1alpha1.LabelMachineName: m.Name},
			Annotations: map[string]string{v1alpha1.AnnotationMachine: v1alpha1.RefOf(m).String()},
		}, Spec: corev1.NodeSpec{ProviderID: m.Spec.ProviderID}}
	}
	w.setPhase(m, v1alpha1.MachineRunning)
	w.note(Step{Do: Joined, Name: m.Name, Set: w.setName(m), Zone: w.zone(m), IsNew: w.isNew[m.UID]})
}

// setPhase writes a machine that has entered a phase now.
func (w *world) setPhase(m *v1alpha1.Machine, phase v1alpha1.MachinePhase) *v1alpha1.Machine {
	m = m.DeepCopy()
	m.Status.CurrentStatus.Phase, m.Status.CurrentStatus.LastUpdateTime = phase, metav1.NewTime(w.now)
	return w.write(m)
}

// written returns the version of an object that is being written.
func (w *world) written() string {
	w.version++
	return "plan-" + strconv.Itoa(w.version)
}

// write stores a machine, in place of an earlier version.
func (w *world) write(m *v1alpha1.Machine) *v1alpha1.Machine {
	m.ResourceVersion = w.written()
	w.drop(m.UID)
	set := metav1.GetControllerOfNoCopy(m).UID
	all := w.machines[set]
	i, _ := slices.BinarySearchFunc(all, m.Name, func(o *v1alpha1.Machine, name string) int { return cmp.Compare(o.Name, name) })
	w.machines[set] = slices.Insert(slices.Clone(all), i, m)
	return m
}

// drop removes a machine from the list that it is in.
func (w *world) drop(uid types.UID) {
	for set, all := range w.machines {
		if i := slices.IndexFunc(all, func(m *v1alpha1.Machine) bool { return m.UID == uid }); i >= 0 {
			w.machines[set] = slices.Delete(slices.Clone(all), i, i+1)
			return
		}
	}
}

// remove removes a machine, and its Node.
func (w *world) remove(m *v1alpha1.Machine) {
	w.drop(m.UID)
	delete(w.nodes, m.Labels[v1alpha1.LabelNode])
	w.version++
}

// find returns a machine; nil if it does not exist any more.
func (w *world) find(uid types.UID) *v1alpha1.Machine {
	for _, all := range w.machines {
		for _, m := range all {
			if m.UID == uid {
				return m
			}
		}
	}
	return nil
}

// writeSet stores a set, in place of an earlier version.
func (w *world) writeSet(set *v1alpha1.MachineSet) *v1alpha1.MachineSet {
	set = set.DeepCopy()
	set.ResourceVersion = w.written()
	if i := slices.IndexFunc(w.sets, func(s *v1alpha1.MachineSet) bool { return s.UID == set.UID }); i >= 0 {
		if !machinefacts.Same(w.sets[i].Spec, set.Spec) {
			set.Generation++
		}
		w.sets = slices.Clone(w.sets)
		w.sets[i] = set
		return set
	}
	w.sets = byName(append(slices.Clone(w.sets), set))
	return set
}

// removeSet removes a set.
func (w *world) removeSet(uid types.UID) {
	w.sets = slices.DeleteFunc(slices.Clone(w.sets), func(s *v1alpha1.MachineSet) bool { return s.UID == uid })
	w.version++
}

func (w *world) set(uid types.UID) *v1alpha1.MachineSet {
	for _, s := range w.sets {
		if s.UID == uid {
			return s
		}
	}
	return nil
}

// setName returns the name of a machine's set.
func (w *world) setName(m *v1alpha1.Machine) string {
	if c := metav1.GetControllerOfNoCopy(m); c != nil {
		return c.Name
	}
	return ""
}

// sooner records that time alone changes something.
func (w *world) sooner(in time.Duration) {
	if at := w.now.Add(in); in > 0 && (w.wake.IsZero() || at.Before(w.wake)) {
		w.wake = at
	}
}

// machinesByName returns all machines.
func (w *world) machinesByName() []*v1alpha1.Machine {
	return byName(slices.Concat(slices.Collect(maps.Values(w.machines))...))
}
