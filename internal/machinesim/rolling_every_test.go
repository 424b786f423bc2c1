package machinesim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// explorer explores every order of the steps of a rollout.
type explorer struct {
	*testing.T

	seen     map[string]bool
	outcomes map[string]string // and the path to it
	path     []string
	onPath   map[string]bool
}

// TestEveryInterleavingOfARolloutEndsTheSame runs deployment, sets and machines in every possible
// order, with a change by the user at every point. In each order the limits hold, and the rollout
// ends in the same state.
func TestEveryInterleavingOfARolloutEndsTheSame(t *testing.T) {
	recreate := v1alpha1.MachineDeploymentStrategy{Type: v1alpha1.RecreateMachineDeploymentStrategyType}
	for name, tc := range map[string]struct {
		strategy v1alpha1.MachineDeploymentStrategy
		replicas int32
		then     func(*v1alpha1.MachineDeploymentSpec) // what the user requests at any moment after the first change
	}{
		"one beyond":                    {rollingUpdate("1", "0"), 3, nil},
		"one missing":                   {rollingUpdate("0", "1"), 3, nil},
		"one beyond, one missing":       {rollingUpdate("1", "1"), 2, nil},
		"two beyond":                    {rollingUpdate("2", "0"), 2, nil},
		"all at once":                   {recreate, 2, nil},
		"another template in between":   {rollingUpdate("1", "0"), 2, useTemplate("c")},
		"back in between":               {rollingUpdate("1", "0"), 2, useTemplate("a")},
		"another, all at once":          {recreate, 2, useTemplate("c")},
		"one missing, back in between":  {rollingUpdate("0", "1"), 2, useTemplate("a")},
		"paused in between and resumed": {rollingUpdate("1", "0"), 2, func(s *v1alpha1.MachineDeploymentSpec) { s.Paused = !s.Paused }},
		"fewer in between":              {rollingUpdate("1", "0"), 2, func(s *v1alpha1.MachineDeploymentSpec) { s.Replicas = 1 }},
		"more in between":               {rollingUpdate("1", "0"), 1, func(s *v1alpha1.MachineDeploymentSpec) { s.Replicas = 2 }},
		"rolled back in between": {rollingUpdate("1", "0"), 2, func(s *v1alpha1.MachineDeploymentSpec) {
			s.RollbackTo = &v1alpha1.RollbackConfig{Revision: 1}
		}},
	} {
		for _, predicts := range []bool{false, true} { // alone, and as in the fleet
			t.Run(fmt.Sprintf("%s, predicts %v", name, predicts), func(t *testing.T) {
				r := newRolling(t, 1, tc.strategy, tc.replicas)
				r.predicts = predicts
				r.user(useTemplate("b"))
				e := &explorer{T: t, seen: map[string]bool{}, outcomes: map[string]string{}, onPath: map[string]bool{}}
				changes := 0
				if tc.then != nil {
					changes = 1
				}
				if strings.HasPrefix(name, "paused") {
					changes = 2
				}
				e.explore(r, tc.then, changes)
				if len(e.outcomes) != 1 {
					t.Errorf("%d ends: %v", len(e.outcomes), e.outcomes)
				}
				t.Logf("%d states", len(e.seen))
			})
		}
	}
}

func useTemplate(template string) func(*v1alpha1.MachineDeploymentSpec) {
	return func(s *v1alpha1.MachineDeploymentSpec) {
		s.Template.Annotations = map[string]string{"template": template}
	}
}

// explore follows all possible next steps. changes is how often the user still changes the
// deployment.
func (e *explorer) explore(r *rolling, then func(*v1alpha1.MachineDeploymentSpec), changes int) {
	e.Helper()
	key := fmt.Sprintf("%d %s", changes, r.state())
	if e.onPath[key] {
		e.Fatalf("the steps repeat: %s", strings.Join(e.path, ", "))
	}
	if e.seen[key] {
		return
	}
	e.seen[key], e.onPath[key] = true, true
	ended := true
	for _, move := range r.moves() {
		next := r.copy()
		move.do(next)
		next.checkLimits()
		if next.state() == r.state() {
			continue
		}
		ended = false
		e.path = append(e.path, move.name)
		e.explore(next, then, changes)
		e.path = e.path[:len(e.path)-1]
	}
	if changes > 0 {
		next := r.copy()
		next.user(then)
		ended = false
		e.path = append(e.path, "user")
		e.explore(next, then, changes-1)
		e.path = e.path[:len(e.path)-1]
	}
	delete(e.onPath, key)
	if ended {
		r.mustBeDone()
		e.outcomes[r.outcome()] = strings.Join(e.path, ", ")
	}
}

// move is one possible step.
type move struct {
	name string
	do   func(r *rolling)
}

// moves are the possible steps of deployment, sets and machines.
func (r *rolling) moves() (moves []move) {
	moves = append(moves, move{"deployment", (*rolling).passDeployment})
	for _, set := range sorted(r.sets.now()) {
		moves = append(moves, move{set.Name, func(r *rolling) { r.passSet(set.Name) }})
	}
	for _, m := range sorted(r.machines.now()) {
		moves = append(moves, move{m.Name, func(r *rolling) { r.turn(m.Name) }})
	}
	if r.manual {
		moves = append(moves, move{"the user selects a Node", (*rolling).userSelects})
	}
	return moves
}

// turn makes a machine run, or removes it.
func (r *rolling) turn(name string) {
	m := r.machines.now()[name].DeepCopy()
	switch {
	case m.DeletionTimestamp != nil:
		m.Finalizers = nil
	case m.Status.CurrentStatus.Phase == "":
		r.comeUp(m)
	default:
		r.updateInPlace(name)
		return
	}
	r.machines.update(m)
}

// copy returns another world in the same state.
func (r *rolling) copy() *rolling {
	w := newEmptyWorld(r.T, r.seed)
	w.now, w.serial, w.versions, w.created = r.now, r.serial, r.versions, maps.Clone(r.created)
	w.deployments.history = []map[string]*v1alpha1.MachineDeployment{r.deployments.now()}
	w.sets.history = []map[string]*v1alpha1.MachineSet{r.sets.now()}
	w.machines.history = []map[string]*v1alpha1.Machine{r.machines.now()}
	w.nodes.history = []map[string]*corev1.Node{r.nodes.now()}
	c := &rolling{
		world: w, broken: r.broken, tooLate: maps.Clone(r.tooLate), ends: map[types.UID]time.Time{}, least: r.least, most: r.most,
		resized: r.resized, steady: r.steady, recreates: r.recreates, predicts: r.predicts, inPlace: r.inPlace, manual: r.manual,
		instant: r.instant, fails: r.fails,
	}
	c.replaceOwner()
	return c
}

// state is the part of the world that decides about the next steps.
func (r *rolling) state() string {
	d := r.deployment()
	words := []string{fmt.Sprintf("%d %v %s %s %d",
		d.Spec.Replicas, d.Spec.Paused, d.Spec.Template.Annotations["template"], d.Annotations, d.Generation-d.Status.ObservedGeneration)}
	for _, c := range d.Status.Conditions {
		words = append(words, fmt.Sprintf("%s %s %s", c.Type, c.Status, c.Reason))
	}
	for _, set := range sorted(r.sets.now()) {
		words = append(words, fmt.Sprintf("%s %d %v %v %s",
			set.Name, set.Spec.Replicas, set.DeletionTimestamp != nil, set.Annotations, set.Labels[v1alpha1.LabelScaleUpDisabled]))
	}
	for _, m := range sorted(r.machines.now()) {
		words = append(words, fmt.Sprintf("%s %s %v", m.Name, m.Status.CurrentStatus.Phase, m.DeletionTimestamp != nil))
		if r.inPlace {
			words = append(words, fmt.Sprintf("%s of %s %v", m.Name, setOf(m), m.Labels))
		}
	}
	for _, node := range sorted(r.nodes.now()) {
		words = append(words,
			fmt.Sprintf("%s %s %v %v %d", node.Name, machinefacts.InPlaceStage(node), node.Labels, node.Annotations, len(node.Spec.Taints)))
	}
	slices.Sort(words[1:])
	return strings.Join(words, "\n")
}
