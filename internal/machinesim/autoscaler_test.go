package machinesim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// autoscaler is a cluster-autoscaler of one of the three generations: it names machines and lowers
// the replicas, and raises them again, at any time.
type autoscaler struct {
	*rolling

	generation int
	// named are all machines that it has ever named, by UID, and the state before of the Nodes that it
	// has cordoned.
	named map[types.UID]string
	// raised is by how much it has raised the replicas, and beyond how many more machines may be
	// created: the surge of a rollout beyond the replicas.
	raised, beyond int
	// keeps is the minimum of replicas.
	keeps int
	// lowering is by how much an old one lowers the replicas next, when all machines have their
	// priority.
	lowering int
	// born are the machines that existed before it began; looked is how much of the history since then
	// was checked.
	born   map[types.UID]bool
	looked int
}

// newAutoscaler starts with the existing machines.
func newAutoscaler(r *rolling, generation int) *autoscaler {
	a := &autoscaler{
		rolling: r, generation: generation, named: map[types.UID]string{}, born: map[types.UID]bool{}, looked: len(r.machines.history),
	}
	for _, m := range r.machines.now() {
		a.born[m.UID] = true
	}
	r.steady, r.resized = false, true
	r.most = 1000 // check has the limit
	return a
}

// update changes the current version of the deployment.
func (a *autoscaler) update(change func(d *v1alpha1.MachineDeployment)) {
	d := a.deployment().DeepCopy()
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	replicas := d.Spec.Replicas
	change(d)
	if d.Spec.Replicas != replicas {
		d.Generation++
	}
	if _, ok := a.deployments.update(d); !ok {
		a.Fatal("the write of the autoscaler was rejected")
	}
}

// act does one random action of an autoscaler.
func (a *autoscaler) act() {
	switch {
	case a.lowering > 0:
		a.note("the autoscaler lowers the replicas by %d", a.lowering)
		a.update(func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas -= int32(a.lowering) })
		a.lowering = 0
	case a.dice.IntN(3) == 0 && a.deployment().Spec.Replicas < 8:
		n := 1 + a.dice.IntN(2)
		a.note("the autoscaler raises the replicas by %d", n)
		a.raised += n
		a.update(func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas += int32(n) })
	default:
		a.lower(1 + a.dice.IntN(3))
	}
}

// lower names machines that run, which it has not named before, and lowers the replicas by as many.
func (a *autoscaler) lower(n int) {
	var candidates []*v1alpha1.Machine
	for _, m := range sorted(a.machines.now()) {
		if m.DeletionTimestamp == nil && a.named[m.UID] == "" && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
			candidates = append(candidates, m)
		}
	}
	a.dice.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
	candidates = candidates[:min(n, len(candidates), int(a.deployment().Spec.Replicas)-a.keeps)]
	if len(candidates) == 0 {
		return
	}
	for _, m := range candidates {
		a.named[m.UID] = m.Name
		a.note("the autoscaler names %s", m.Name)
	}
	switch a.generation {
	case 1:
		for _, m := range candidates {
			m = m.DeepCopy()
			m.Annotations[v1alpha1.AnnotationPriority] = v1alpha1.PriorityTriggered
			if _, ok := a.machines.update(m); !ok {
				a.Fatal("the write of the autoscaler was rejected")
			}
		}
		a.lowering = len(candidates)
	default:
		a.update(func(d *v1alpha1.MachineDeployment) { a.name(d, candidates) })
	}
}

// name adds machines to the list, and lowers the replicas. Existing entries keep the time at which
// they were named, so entries have different times.
func (a *autoscaler) name(d *v1alpha1.MachineDeployment, machines []*v1alpha1.Machine) {
	var entries []string
	if list := d.Annotations[v1alpha1.AnnotationTriggerDeletion]; list != "" {
		entries = strings.Split(list, ",")
	}
	since := ""
	if a.generation == 3 {
		at := a.clock(entries)
		d.Annotations[v1alpha1.AnnotationLastReplicaChangeByScaler] = at
		since = "~" + at
	}
	for _, m := range machines {
		entries = append(entries, m.Name+since)
	}
	d.Annotations[v1alpha1.AnnotationTriggerDeletion] = strings.Join(entries, ",")
	d.Spec.Replicas -= int32(len(machines))
}

// clock is the time of an autoscaler, which differs from that of the fleet, and may be set back;
// but not to before an entry of the list: that would mean that the reduction of replicas for that
// entry is yet to come.
func (a *autoscaler) clock(entries []string) string {
	at := a.now.Add(time.Duration(a.dice.IntN(2000)-1000) * time.Millisecond).UTC().Format(time.RFC3339)
	for _, entry := range entries {
		_, since, _ := strings.Cut(entry, "~")
		at = max(at, since)
	}
	return at
}

// check looks at all states of the machines since its last call: no machine is deleted that was not
// named, and none is created that was not requested.
func (a *autoscaler) check() {
	for ; a.looked < len(a.machines.history); a.looked++ {
		before, after := a.machines.history[a.looked-1], a.machines.history[a.looked]
		for name, was := range before {
			is, remaining := after[name]
			if was.DeletionTimestamp == nil && (!remaining || is.DeletionTimestamp != nil) && a.named[was.UID] == "" {
				a.Fatalf("seed %d: %s is deleted, and was not named:\n%s", a.seed, name, a.tale())
			}
		}
		for _, m := range after {
			a.born[m.UID] = a.born[m.UID] || false
		}
	}
	if created := len(slices.DeleteFunc(slices.Collect(maps.Values(a.born)), func(before bool) bool { return before })); created > a.raised &&
		created > 0 && (a.raised == 0 || created > a.raised+a.beyond) {
		a.Fatalf("seed %d: %d machines were created, and %d requested:\n%s", a.seed, created, a.raised, a.tale())
	}
}

// standing returns the named machines that still exist.
func (a *autoscaler) standing() (names []string) {
	for _, m := range sorted(a.machines.now()) {
		if a.named[m.UID] != "" {
			names = append(names, m.Name)
		}
	}
	return names
}

// storm makes the autoscaler act while all faults occur.
func (a *autoscaler) storm(times int) {
	for range times {
		a.rolling.storm(a.dice.IntN(25))
		a.wild = true // so that it is in the story
		a.act()
		a.wild = false
		a.check()
	}
	if a.lowering > 0 {
		a.act()
	}
	a.rolling.storm(200)
	a.check()
	a.late = nil
	a.withoutFaults(30 * time.Minute)
	a.check()
}

// mustHaveGone fails unless exactly the named machines were deleted.
func (a *autoscaler) mustHaveGone() {
	if remaining := a.standing(); len(remaining) > 0 {
		a.Fatalf("seed %d: %v were named and not deleted:\n%s", a.seed, remaining, a.tale())
	}
	d := a.deployment()
	if list := d.Annotations[v1alpha1.AnnotationTriggerDeletion]; list != "" {
		a.Fatalf("seed %d: %s are still named:\n%s", a.seed, list, a.tale())
	}
	if got, want := len(a.machines.now()), int(d.Spec.Replicas); got != want {
		a.Fatalf("seed %d: %d machines are there, want %d:\n%s", a.seed, got, want, a.tale())
	}
}

// eachAutoscaler runs play for each generation, and many seeds.
func eachAutoscaler(t *testing.T, play func(t *testing.T, seed uint64, generation int)) {
	t.Helper()
	for generation := 1; generation <= 3; generation++ {
		for i := range worlds.Some(*seeds) {
			seed := *first + uint64(i)
			t.Run(fmt.Sprintf("generation %d, seed %d", generation, seed), func(t *testing.T) { play(t, seed, generation) })
		}
	}
}

// Named machines are deleted, and no others, while processes die, caches lag and writes are late,
// and the autoscaler raises and lowers the replicas; and as many are created as it has requested.
//
// An autoscaler of the first generation records neither how many machines it has named nor when. If
// it raises the replicas before any process has observed them lowered, nothing has changed: then
// its machines remain, with their priority, and are the next to be deleted. No machine is deleted
// that was not named.
func TestNamedMachinesAreDeleted(t *testing.T) {
	eachAutoscaler(t, func(t *testing.T, seed uint64, generation int) {
		r := newRolling(t, seed, rollingUpdate("1", "0"), int32(4+newDice(seed).IntN(5)))
		r.predicts = seed%2 == 0
		a := newAutoscaler(r, generation)
		a.storm(1 + a.dice.IntN(8))
		if generation > 1 || a.raised == 0 {
			a.mustHaveGone()
		}
		if remaining := a.standing(); len(remaining) > a.raised {
			t.Fatalf("seed %d: %v were named and not deleted, and the replicas were raised by %d:\n%s", seed, remaining, a.raised, a.tale())
		}
	})
}
