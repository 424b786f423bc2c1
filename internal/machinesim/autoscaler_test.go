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

// autoscaler is a cluster-autoscaler of one of the three generations: it names machines and lowers the replicas, and raises them
// again, whatever the fleet is about.
type autoscaler struct {
	*rolling

	generation int
	// named are all machines that it has ever named, by UID, and what the Nodes of those were that it has cordoned.
	named map[types.UID]string
	// raised is by how much it has raised the replicas, and beyond how many machines may come with them: what a rollout may have
	// beyond the replicas.
	raised, beyond int
	// keeps is how many replicas it leaves.
	keeps int
	// lowering is by how much an old one lowers the replicas next, when it has given all their priority.
	lowering int
	// born are the machines that were there before it began; since then, looked says how far the history was looked at.
	born   map[types.UID]bool
	looked int
}

// newAutoscaler begins with the machines that stand now.
func newAutoscaler(r *rolling, generation int) *autoscaler {
	a := &autoscaler{rolling: r, generation: generation, named: map[types.UID]string{}, born: map[types.UID]bool{}, looked: len(r.machines.history)}
	for _, m := range r.machines.now() {
		a.born[m.UID] = true
	}
	r.steady, r.resized = false, true
	r.most = 1000 // how many there may be is said in check
	return a
}

// update writes the deployment as it is now, changed.
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
		a.Fatal("the autoscaler is refused")
	}
}

// act does what an autoscaler may do next.
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
				a.Fatal("the autoscaler is refused")
			}
		}
		a.lowering = len(candidates)
	default:
		a.update(func(d *v1alpha1.MachineDeployment) { a.name(d, candidates) })
	}
}

// name puts machines on the list, and lowers the replicas. What is on the list already stays as it is, with the time at which it
// was named: entries come to have times of their own.
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

// clock is the time of an autoscaler, which is not that of the fleet, and may be set back; but not to before one that is on the list
// still: that would say that the replicas of that one are yet to come.
func (a *autoscaler) clock(entries []string) string {
	at := a.now.Add(time.Duration(a.dice.IntN(2000)-1000) * time.Millisecond).UTC().Format(time.RFC3339)
	for _, entry := range entries {
		_, since, _ := strings.Cut(entry, "~")
		at = max(at, since)
	}
	return at
}

// check looks at all states that the machines have been in since it last did: no machine goes that was not named, and none comes
// that was not asked for.
func (a *autoscaler) check() {
	for ; a.looked < len(a.machines.history); a.looked++ {
		before, after := a.machines.history[a.looked-1], a.machines.history[a.looked]
		for name, was := range before {
			is, left := after[name]
			if was.DeletionTimestamp == nil && (!left || is.DeletionTimestamp != nil) && a.named[was.UID] == "" {
				a.Fatalf("seed %d: %s goes, and was not named:\n%s", a.seed, name, a.tale())
			}
		}
		for _, m := range after {
			a.born[m.UID] = a.born[m.UID] || false
		}
	}
	if made := len(slices.DeleteFunc(slices.Collect(maps.Values(a.born)), func(before bool) bool { return before })); made > a.raised && made > 0 && (a.raised == 0 || made > a.raised+a.beyond) {
		a.Fatalf("seed %d: %d machines were made, and %d asked for:\n%s", a.seed, made, a.raised, a.tale())
	}
}

// standing are the named machines that are there still.
func (a *autoscaler) standing() (names []string) {
	for _, m := range sorted(a.machines.now()) {
		if a.named[m.UID] != "" {
			names = append(names, m.Name)
		}
	}
	return names
}

// storm has the autoscaler act in the middle of everything that may go wrong.
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
	a.calm(30 * time.Minute)
	a.check()
}

// mustHaveGone fails unless all machines have gone that were named, and none else.
func (a *autoscaler) mustHaveGone() {
	if left := a.standing(); len(left) > 0 {
		a.Fatalf("seed %d: %v were named, and stay:\n%s", a.seed, left, a.tale())
	}
	d := a.deployment()
	if list := d.Annotations[v1alpha1.AnnotationTriggerDeletion]; list != "" {
		a.Fatalf("seed %d: %s are named still:\n%s", a.seed, list, a.tale())
	}
	if got, want := len(a.machines.now()), int(d.Spec.Replicas); got != want {
		a.Fatalf("seed %d: %d machines are there, want %d:\n%s", a.seed, got, want, a.tale())
	}
}

// eachAutoscaler plays with each generation, and many seeds.
func eachAutoscaler(t *testing.T, play func(t *testing.T, seed uint64, generation int)) {
	t.Helper()
	for generation := 1; generation <= 3; generation++ {
		for i := range worlds.Some(*seeds) {
			seed := *first + uint64(i)
			t.Run(fmt.Sprintf("generation %d, seed %d", generation, seed), func(t *testing.T) { play(t, seed, generation) })
		}
	}
}

// TestTheNamedOnesGo: whatever processes die, caches lag and writes come late while the autoscaler names machines and raises
// and lowers the replicas, exactly those go that it has named, and as many come as it has asked for.
//
// An autoscaler of the first generation says neither how many it has named nor when. Where it raises the replicas before anybody
// has seen them lowered, nothing has changed: then its machines stay, with their priority, and are the next to go. None goes
// that was not named.
func TestTheNamedOnesGo(t *testing.T) {
	eachAutoscaler(t, func(t *testing.T, seed uint64, generation int) {
		r := newRolling(t, seed, rollingUpdate("1", "0"), int32(4+newDice(seed).IntN(5)))
		r.foresees = seed%2 == 0
		a := newAutoscaler(r, generation)
		a.storm(1 + a.dice.IntN(8))
		if generation > 1 || a.raised == 0 {
			a.mustHaveGone()
		}
		if left := a.standing(); len(left) > a.raised {
			t.Fatalf("seed %d: %v were named, and stay, and the replicas were raised by %d:\n%s", seed, left, a.raised, a.tale())
		}
	})
}
