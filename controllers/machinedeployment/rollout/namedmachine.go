package rollout

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// namedMachine is a machine that the autoscaler has named, and how far its deletion is.
type namedMachine struct {
	named

	stage stage
	// set and machine are nil in the stages unread and gone. Of the machine the metadata are the
	// newest that are known.
	set     *v1alpha1.MachineSet
	machine *v1alpha1.Machine
	// failed reports whether it has failed.
	failed bool
}

// stage is how far the deletion of a named machine is.
type stage int

const (
	// unread: the cache does not show it, and the API server was not read.
	unread stage = iota
	// gone: it does not exist any more, or is being deleted, or was never the deployment's.
	gone
	// exempt: it has failed and is kept all the same.
	exempt
	// unmarked: it does not have the mark for deletion yet.
	unmarked
	// marked: it has the mark; its set has not got the time of the mark yet, nor the size that belongs
	// to it.
	marked
	// passedOn: the set has got the time of the mark and deletes the machine; or the autoscaler has
	// yet to write the replicas that belong to it.
	passedOn
)

// namedMachines returns what has become of the machines that are named.
func namedMachines(w World) (all []namedMachine) {
	list := readNamed(w.Deployment)
	if len(list) == 0 {
		return nil
	}
	known := knownMachines(w.Owned, w.Machines, w.Live)
	changed, _ := changedByScaler(w.Deployment)
	for _, n := range list {
		u := namedMachine{named: n}
		if found, ok := known[n.machine]; ok {
			u = found
			u.named = n
		} else if w.Live != nil {
			u.stage = gone
		}
		if u.stage == unmarked {
			u.stage = u.markedStage(changed)
		}
		if u.stage == unmarked && u.failed && machinefacts.IsKept(u.machine, w.Now) {
			u.stage = exempt
		}
		all = append(all, u)
	}
	return all
}

// markedStage returns the stage of a machine that is not being deleted.
func (n namedMachine) markedStage(changed time.Time) stage {
	mark := markOf(n.machine)
	received, _ := changedByScaler(n.set)
	switch {
	case mark.IsZero() || n.machine.Annotations[v1alpha1.AnnotationPriority] != v1alpha1.PriorityTriggered:
		return unmarked
	case mark.After(received) && !n.at.After(changed):
		return marked
	}
	return passedOn
}

func markOf(m metav1.Object) time.Time {
	at, _ := machinefacts.TimeIn(m, v1alpha1.AnnotationMarkedForDeletionTime)
	return at
}

// knownMachines returns all machines of the deployment, by name: those that are not being deleted
// as unmarked, and the others as gone.
func knownMachines(owned []*v1alpha1.MachineSet, shown map[types.UID][]*v1alpha1.Machine, live *Live) map[string]namedMachine {
	cached := map[string]namedMachine{}
	for _, set := range owned {
		for _, m := range shown[set.UID] {
			cached[m.Name] = namedMachine{
				stage: stageOf(set, m), set: set, machine: m, failed: m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed,
			}
		}
	}
	if live == nil {
		return cached
	}
	known := map[string]namedMachine{}
	for _, set := range owned {
		for _, m := range live.of(set) {
			u := namedMachine{stage: stageOf(set, m), set: set, machine: &v1alpha1.Machine{ObjectMeta: *m}}
			if is, ok := cached[m.Name]; ok && is.machine.UID == m.UID {
				u.machine.Spec, u.machine.Status, u.failed = is.machine.Spec, is.machine.Status, is.failed
			}
			known[m.Name] = u
		}
	}
	return known
}

func stageOf(set *v1alpha1.MachineSet, m metav1.Object) stage {
	if m.GetDeletionTimestamp() != nil || set.DeletionTimestamp != nil {
		return gone
	}
	return unmarked
}

// markNamed marks the machines that are named, before any set gets the replicas that belong to the
// mark: a set that shrinks deletes those that are marked. What remains to be done about them is
// decided on a live read.
func markNamed(w World) (v Verdict, decided bool) {
	var open bool
	for _, u := range namedMachines(w) {
		switch u.stage {
		case unread, marked:
			open = true
		case unmarked:
			open = true
			v.Machines = append(v.Machines, u.withMark())
		case exempt:
			if at, _ := machinefacts.TimeIn(u.machine, v1alpha1.AnnotationUncordonAt); !at.After(w.Now) {
				open = true
				v.Machines = append(v.Machines, u.withUncordon(w.Now))
			}
		case gone, passedOn:
		}
	}
	switch {
	case open && w.Live == nil:
		return Verdict{Do: ReadLive}, true
	case len(v.Machines) > 0:
		v.Do = Mark
		return v, true
	}
	return Verdict{}, false
}

// withMark returns the machine with its mark. The mark is the time that comes with the name, but
// later than any time that the set has got: where the autoscaler has named another one within the
// same second, or its clock was set back, the set would delete the machine before it has the size
// that belongs to it, and create another one in its place.
func (n namedMachine) withMark() *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: *n.machine.ObjectMeta.DeepCopy()}
	since := n.since
	if received, _ := changedByScaler(n.set); !n.at.After(received) {
		since = inWords(received.Add(time.Second))
	}
	if markOf(m).IsZero() {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationMarkedForDeletionTime, since)
	}
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationPriority, v1alpha1.PriorityTriggered)
	delete(m.Annotations, v1alpha1.AnnotationUncordonAt)
	return m
}

// cordoned is for how long the autoscaler may still cordon the Node of a machine that is not named
// any more: it reads the names every 10 s.
const cordoned = 15 * time.Second

// withUncordon returns a machine that is not deleted, in its desired state: the cordon of its Node
// is removed later.
func (n namedMachine) withUncordon(now time.Time) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: *n.machine.ObjectMeta.DeepCopy()}
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationUncordonAt, inWords(now.Add(cordoned)))
	return m
}

// stillNamed are the entries that remain on the deployment: of machines that are not being deleted,
// have not failed and are not kept.
func (s report) stillNamed() (list []named) {
	for _, u := range s.namedMachines {
		if u.stage == gone || u.stage == exempt || u.stage == passedOn && u.failed {
			continue
		}
		list = append(list, u.named)
	}
	return list
}

// noteChange writes to a set, with the size that belongs to it, until when marked machines may be
// deleted now. All that are named are marked by then.
func (s setChanges) noteChange(t *tally, set *v1alpha1.MachineSet) {
	if t != s.newSet && t.isEmpty() {
		return
	}
	last, _ := changedByScaler(set)
	advance := func(at time.Time, since string) {
		if at.After(last) {
			last = at
			metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationLastReplicaChangeByScaler, since)
		}
	}
	advance(changedByScaler(s.d))
	for _, u := range s.namedMachines {
		if u.stage == marked && u.set.UID == set.UID {
			advance(machinefacts.TimeIn(u.machine, v1alpha1.AnnotationMarkedForDeletionTime))
		}
	}
}

// countNamed is how many machines of a set were named that its size does not account for yet. It
// shrinks by these, should the deployment shrink. A machine that carries the priority alone was
// named by an old autoscaler, which lowers the replicas next; if the set has to delete some anyway,
// that one is among them.
func (s *sets) countNamed(t *tally) (n int32) {
	set := t.set
	for _, u := range s.namedMachines {
		if u.stage == marked && u.set.UID == set.UID {
			n++
		}
	}
	live := s.w.Live.of(set)
	received, _ := changedByScaler(set)
	standing, leaving, withoutTime := int32(0), int32(0), int32(0)
	for _, m := range live {
		mark := markOf(m)
		switch triggered := m.Annotations[v1alpha1.AnnotationPriority] == v1alpha1.PriorityTriggered; {
		case m.DeletionTimestamp != nil:
			continue
		case triggered && mark.IsZero():
			withoutTime++
		case triggered && !mark.After(received):
			leaving++
		}
		standing++
	}
	excess := standing - leaving + awaited(t, live) - set.Spec.Replicas
	return n + max(withoutTime-max(excess, 0), 0)
}

// named is an entry of the list in which the cluster-autoscaler names the machines to delete.
type named struct {
	machine string
	// at is when it was named, and since the same as text; an older autoscaler does not write it, and
	// both are zero.
	at    time.Time
	since string
}

// readNamed reads the list. Invalid entries are left out, and so is a machine that is named once
// more.
func readNamed(d *v1alpha1.MachineDeployment) (list []named) {
	for entry := range strings.SplitSeq(d.Annotations[v1alpha1.AnnotationTriggerDeletion], ",") {
		machine, since, timed := strings.Cut(strings.TrimSpace(entry), "~")
		n := named{machine: machine, since: since}
		if timed {
			var err error
			if n.at, err = time.Parse(time.RFC3339, n.since); err != nil {
				continue
			}
		}
		if n.machine != "" && !slices.ContainsFunc(list, func(o named) bool { return o.machine == n.machine }) {
			list = append(list, n)
		}
	}
	return list
}

// writeNamed writes the list to a deployment; an empty one removes the annotation.
func writeNamed(d *v1alpha1.MachineDeployment, list []named) {
	if len(list) == 0 {
		delete(d.Annotations, v1alpha1.AnnotationTriggerDeletion)
		return
	}
	entries := make([]string, len(list))
	for i, n := range list {
		entries[i] = n.machine + "~" + n.since
	}
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationTriggerDeletion, strings.Join(entries, ","))
}

// upgradeNamed adds the time of the last change of the replicas to entries without a time. Where
// the autoscaler does not write that one, either, both are now.
func upgradeNamed(d *v1alpha1.MachineDeployment, now time.Time) {
	list := readNamed(d)
	if !slices.ContainsFunc(list, func(n named) bool { return n.since == "" }) {
		return
	}
	at, since := changedByScaler(d)
	if since == "" {
		at, since = now, inWords(now)
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationLastReplicaChangeByScaler, since)
	}
	for i, n := range list {
		if n.since == "" {
			list[i].at, list[i].since = at, since
		}
	}
	writeNamed(d, list)
}

// changedByScaler returns when the autoscaler last changed the replicas: on a deployment as the
// autoscaler has written it, on a set as the set got it with the size that belongs to it. It is
// zero and "" when it was not written.
func changedByScaler(obj metav1.Object) (at time.Time, since string) {
	return machinefacts.TimeIn(obj, v1alpha1.AnnotationLastReplicaChangeByScaler)
}

func inWords(at time.Time) string { return at.UTC().Format(time.RFC3339) }
