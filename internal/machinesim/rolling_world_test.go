package machinesim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// rolling is a world of one deployment whose machines are replaced, by the code that decides about
// deployments and sets. Machines appear and disappear by themselves here, after some time.
type rolling struct {
	*world

	owner *process
	// shows are the deployments and sets that the owner has written and its caches may not show yet,
	// by name.
	shows map[string]metav1.Object
	// unseen are the sets that the owner has seen live, or created, and its caches have not shown; nil
	// when it has not listed.
	unseen map[types.UID]bool
	// broken are templates whose machines never run.
	broken map[string]bool
	// refused are templates whose VMs the cloud refuses, for a reason that lasts, so that their
	// machines do not fail.
	refused map[string]bool
	ends    map[types.UID]time.Time // when a machine runs, or is deleted
	// least machines have to run, and most may exist. resized reports whether the replicas have
	// changed since, so that more may be in deletion.
	least, most int
	resized     bool
	inPlace     bool
	manual      bool                     // users select Nodes
	delays      func(metav1.Object) bool // writes that take effect late, after their process died
	instant     bool                     // every order is tried, so nothing takes time
	fails       int                      // one update in place in so many fails; 0 means none
	keepsFailed bool                     // machines whose update has failed are not replaced
	steady      bool                     // all machines have run
	recreates   bool
	predicts    bool // what follows from a new size is written with it
	// sick makes machines unhealthy and healthy again. Unusable machines are deleted first, and may
	// have recovered by then, so that fewer than have to may run.
	sick bool
	// mortal has some of the unhealthy machines fail; failed are those. They are replaced while they
	// are being deleted.
	mortal bool
	failed map[types.UID]bool
	// tooLate are machines whose creation took effect when their set no longer expected it.
	// docs/limits.md describes them.
	tooLate map[string]bool
	// pool has its configurations go through the deployment; nil without one.
	pool    *joinedPool
	checked int // of the history of the machines
	counts  *counting
}

const rolled = "d"

// newRolling creates a deployment of template a that has all its machines.
func newRolling(t *testing.T, seed uint64, strategy v1alpha1.MachineDeploymentStrategy, replicas int32) *rolling {
	t.Helper()
	w := newEmptyWorld(t, seed)
	r := &rolling{
		world: w, shows: map[string]metav1.Object{}, broken: map[string]bool{}, refused: map[string]bool{}, tooLate: map[string]bool{},
		failed: map[types.UID]bool{}, ends: map[types.UID]time.Time{},
	}
	r.counts = newCounting(seed)
	labels := map[string]string{v1alpha1.LabelName: rolled}
	d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{
		Name: rolled, Namespace: "n", UID: "uid-d", Finalizers: []string{v1alpha1.FinalizerName}, Generation: 1,
		Labels: map[string]string{v1alpha1.LabelSlot: "0"}, CreationTimestamp: metav1.NewTime(w.now),
		Annotations: map[string]string{v1alpha1.AnnotationStrategy: "RollingUpdate"}, // so that the fleet reconciles it
	}}
	d.Spec = v1alpha1.MachineDeploymentSpec{
		Replicas: replicas, Strategy: strategy, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: v1alpha1.MachineTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"template": "a"}},
			Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
		},
	}
	w.deployments.create(d)
	r.replaceOwner()
	r.limit(d)
	r.withoutFaults(10 * time.Minute)
	r.mustBeDone()
	r.steady = true
	return r
}

// newEmptyWorld returns a world without objects.
func newEmptyWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{T: t, seed: seed, dice: newDice(seed), now: start, slots: 1, created: map[string]bool{}}
	w.deployments = newStore[*v1alpha1.MachineDeployment](w)
	w.sets = newStore[*v1alpha1.MachineSet](w)
	w.machines = newStore[*v1alpha1.Machine](w)
	w.nodes = newStore[*corev1.Node](w)
	return w
}

func rollingUpdate(surge, unavailable string) v1alpha1.MachineDeploymentStrategy {
	s, u := intstr.Parse(surge), intstr.Parse(unavailable)
	return v1alpha1.MachineDeploymentStrategy{
		Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
		RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{
			UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: &s, MaxUnavailable: &u},
		},
	}
}

// replaceOwner has a new process own everything. Its caches begin with the current objects.
func (r *rolling) replaceOwner() {
	r.note("a new owner")
	r.owner = newProcess(r.world, "replica")
	r.owner.acquire(0)
	r.shows, r.unseen = map[string]metav1.Object{}, nil
}

func (r *rolling) deployment() *v1alpha1.MachineDeployment { return r.deployments.now()[rolled] }

// user changes the deployment as users do.
func (r *rolling) user(change func(spec *v1alpha1.MachineDeploymentSpec)) {
	d := r.deployment().DeepCopy()
	before := d.Spec.Replicas
	change(&d.Spec)
	d.Generation++
	if _, ok := r.deployments.update(d); !ok {
		r.Fatal("the write of the user was rejected")
	}
	r.resized = r.resized || d.Spec.Replicas != before
	r.limit(d)
}

// limit computes how many machines have to run and how many may exist. Writes that were allowed
// before may still be in flight.
func (r *rolling) limit(d *v1alpha1.MachineDeployment) {
	surge, unavailable := 0, 0
	u := d.Spec.Strategy.RollingUpdate
	if update := d.Spec.Strategy.InPlaceUpdate; update != nil {
		r.inPlace, r.manual = true, update.OrchestrationType == v1alpha1.OrchestrationTypeManual
		u = &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: update.UpdateConfiguration}
	}
	switch {
	case u != nil:
		surge, _ = intstr.GetScaledValueFromIntOrPercent(u.MaxSurge, int(d.Spec.Replicas), true)
		unavailable, _ = intstr.GetScaledValueFromIntOrPercent(u.MaxUnavailable, int(d.Spec.Replicas), false)
		if surge == 0 && unavailable == 0 {
			unavailable = 1
		}
	case d.Spec.Strategy.Type == "":
		surge = 1
	default:
		unavailable = int(d.Spec.Replicas)
	}
	if r.manual { // users select any number, and there is no surge
		surge, unavailable = 0, int(d.Spec.Replicas)
	}
	r.recreates = d.Spec.Strategy.Type == v1alpha1.RecreateMachineDeploymentStrategyType
	least, most := max(int(d.Spec.Replicas)-unavailable, 0), int(d.Spec.Replicas)+surge
	if r.most == 0 {
		r.least = least
	}
	r.least, r.most = min(r.least, least), max(r.most, most)
}

// collect deletes sets and machines whose owner is deleted, as the garbage collector does: a late
// write may have created a set once more, or a machine of one.
func (r *rolling) collect() {
	if r.deployment() != nil {
		return
	}
	for _, set := range sorted(r.sets.now()) {
		r.sets.delete(set, r.now)
	}
	for _, m := range sorted(r.machines.now()) {
		if set := r.sets.now()[setOf(m)]; set == nil || !metav1.IsControlledBy(m, set) {
			r.machines.delete(m, r.now)
		}
	}
}

// live makes machines run, and deletes them.
func (r *rolling) live() {
	r.collect()
	r.liveDaemons()
	for _, m := range sorted(r.machines.now()) {
		end, known := r.ends[m.UID]
		m = m.DeepCopy()
		switch phase := m.Status.CurrentStatus.Phase; {
		case m.DeletionTimestamp != nil && phase != v1alpha1.MachineTerminating:
			r.ends[m.UID] = r.now.Add(time.Duration(5+r.dice.IntN(90)) * time.Second)
			m.Status.CurrentStatus.Phase = v1alpha1.MachineTerminating
		case m.DeletionTimestamp != nil && !r.now.Before(end):
			m.Finalizers = nil
		case m.DeletionTimestamp != nil:
			continue
		case phase == "" && r.refused[m.Annotations["template"]]:
			m.Status.CurrentStatus.Phase = v1alpha1.MachineCrashLoopBackOff
		case phase == v1alpha1.MachineCrashLoopBackOff:
			continue
		case phase == "":
			m.Status.CurrentStatus.Phase = v1alpha1.MachinePending
		case phase == v1alpha1.MachinePending && !known:
			r.ends[m.UID] = r.now.Add(time.Duration(20+r.dice.IntN(60)) * time.Second)
			continue
		case phase == v1alpha1.MachinePending && !r.now.Before(end) && !r.broken[m.Annotations["template"]]:
			r.comeUp(m)
		case phase == v1alpha1.MachineUnknown:
			if r.isOver(m, 20*time.Second) {
				r.getWell(m, !r.mortal || r.dice.IntN(2) == 0)
			}
			continue
		case phase == v1alpha1.MachineFailed:
			if r.dice.IntN(2) == 0 && r.isOver(m, time.Minute) { // it is kept, or its deletion was too slow
				r.getWell(m, true)
			}
			continue
		default:
			r.updateInPlace(m.Name)
			continue
		}
		r.machines.update(m)
	}
}

// getWell lets an unhealthy machine run again, or fail.
func (r *rolling) getWell(m *v1alpha1.Machine, runs bool) {
	if !runs {
		r.failed[m.UID] = true
		r.setPhase(m, v1alpha1.MachineFailed)
		return
	}
	delete(r.failed, m.UID)
	r.setPhase(m, v1alpha1.MachineRunning)
}

// comeUp makes a machine run, on a Node if there are some.
func (r *rolling) comeUp(m *v1alpha1.Machine) {
	m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachineRunning, LastUpdateTime: metav1.NewTime(r.now)}
	if r.inPlace {
		r.join(m)
	}
}

// withoutFaults lets time pass without faults.
func (r *rolling) withoutFaults(d time.Duration) {
	wild := r.wild
	r.wild = false
	const step, glances = 5 * time.Second, 12 // a minute: that is how often time alone changes something
	for i, end := 0, r.now.Add(d); r.now.Before(end); i++ {
		r.now = r.now.Add(step)
		before := r.versions
		if r.live(); r.versions != before || i%glances == 0 {
			r.work()
		}
		r.checkLimits()
	}
	r.wild = wild
}

// work reconciles everything until nothing changes any more.
func (r *rolling) work() {
	for range 100 {
		before := r.versions
		r.passPool()
		r.passDeployment()
		for _, set := range sorted(r.sets.now()) {
			r.passSet(set.Name)
		}
		if r.versions == before {
			return
		}
	}
	r.Fatalf("seed %d: the objects still changed after the last round:\n%s", r.seed, r.tale())
}

// storm lets time pass in which processes die, writes are late, and caches lag.
func (r *rolling) storm(steps int) {
	r.wild = true
	for range steps {
		r.now = r.now.Add(time.Duration(r.dice.IntN(3000)) * time.Millisecond)
		r.live()
		r.checkLimits() // before the reaction to it: a machine whose Node is drained does not count
		names := slices.Collect(func(yield func(string) bool) {
			for _, set := range sorted(r.sets.now()) {
				if !yield(set.Name) {
					return
				}
			}
		})
		switch do := r.dice.IntN(3); {
		case do > 0 || len(names) == 0:
			r.passDeployment()
		default:
			r.passSet(names[r.dice.IntN(len(names))])
		}
		if r.pool != nil && r.chance(2) {
			r.passPool()
		}
		if (r.inPlace || r.sick) && r.chance(20) {
			r.fallIll()
		}
		if r.chance(100) {
			r.replaceOwner() // the last owner is dead, or is suspended in the middle of a pass
		}
		if len(r.late) > 0 && r.chance(30) {
			i := r.dice.IntN(len(r.late))
			late := r.late[i]
			r.late = slices.Delete(r.late, i, i+1)
			r.note("a late write")
			late()
		}
		r.checkLimits()
	}
	r.wild = false
}

// tale returns the history of the run.
func (r *rolling) tale() string { return strings.Join(r.story, "\n") }

// checkLimits checks all states of the machines since its last call.
func (r *rolling) checkLimits() {
	r.checkTemplates()
	r.checkCounts()
	for ; r.checked < len(r.machines.history); r.checked++ {
		machines, standing, replaced, run, most := r.machines.history[r.checked], 0, 0, 0, r.most
		templates := map[string]bool{}
		for _, m := range machines {
			if r.tooLate[m.Name] {
				most++
			} else {
				templates[m.Annotations["template"]] = true
			}
			if m.DeletionTimestamp != nil {
				if r.failed[m.UID] {
					replaced++
				}
				continue
			}
			standing++
			if phase := m.Status.CurrentStatus.Phase; (phase == v1alpha1.MachineRunning || phase == v1alpha1.MachineUnknown) && !r.isSelected(m) {
				run++ // an unhealthy one was not removed
			}
		}
		switch {
		case r.steady && !r.sick && run < r.least:
			r.Fatalf("seed %d: %d machines run, and %d have to:\n%s", r.seed, run, r.least, r.tale())
		case standing > most, len(machines)-replaced > most && !r.resized:
			r.Fatalf("seed %d: there are %d machines, %d of them in deletion, and %d are allowed:\n%s",
				r.seed, len(machines), len(machines)-standing, most, r.tale())
		case r.recreates && len(templates) > 1:
			r.Fatalf("seed %d: there are machines of %d templates at a time:\n%s", r.seed, len(templates), r.tale())
		}
	}
}

// outcome describes the state in the end.
func (r *rolling) outcome() string {
	d := r.deployment()
	words := []string{fmt.Sprintf("replicas %d, template %s", d.Spec.Replicas, d.Spec.Template.Annotations["template"])}
	for _, set := range sorted(r.sets.now()) {
		run, other := 0, 0
		for _, m := range r.machines.now() {
			switch {
			case !metav1.IsControlledBy(m, set):
			case m.DeletionTimestamp == nil && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning:
				run++
			default:
				other++
			}
		}
		template := set.Spec.Template.Annotations["template"]
		if isNew := template == d.Spec.Template.Annotations["template"]; !isNew && set.Spec.Replicas == 0 && run+other == 0 {
			continue
		}
		_, tainted := set.Annotations[v1alpha1.AnnotationPreferNoSchedule]
		words = append(words, fmt.Sprintf("set of %s: size %d, %d run, %d others, kept %v, tainted %v", template, set.Spec.Replicas, run, other,
			set.Annotations[v1alpha1.AnnotationRolling] == v1alpha1.RollingTrue, tainted))
	}
	for _, c := range d.Status.Conditions {
		words = append(words, fmt.Sprintf("%s %s %s", c.Type, c.Status, c.Reason))
	}
	slices.Sort(words[1:])
	return strings.Join(words, "\n")
}

// mustBeDone fails unless all machines are of the current template, and run.
func (r *rolling) mustBeDone() {
	d := r.deployment()
	template := d.Spec.Template.Annotations["template"]
	want := fmt.Sprintf(`replicas %d, template %s
Available True MinimumReplicasAvailable
Progressing True NewMachineSetAvailable
set of %s: size %d, %d run, 0 others, kept false, tainted false`, d.Spec.Replicas, template, template, d.Spec.Replicas, d.Spec.Replicas)
	if got := r.outcome(); got != want {
		r.Fatalf("seed %d: the rollout has not ended. Want\n%s\ngot\n%s\nafter\n%s", r.seed, want, got, r.tale())
	}
}

// serial returns the next number of an object.
func (r *rolling) next() string {
	r.serial++
	return strconv.Itoa(r.serial)
}
