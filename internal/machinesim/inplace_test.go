package machinesim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

const (
	auto   = v1alpha1.OrchestrationTypeAuto
	manual = v1alpha1.OrchestrationTypeManual
)

// names returns the names of all machines.
func (r *rolling) names() string {
	var names []string
	for _, m := range sorted(r.machines.now()) {
		names = append(names, m.Name)
	}
	return strings.Join(names, " ")
}

// mustBeFree fails if anything of an update remains on Nodes, machines, sets and deployment.
func (r *rolling) mustBeFree() {
	for _, node := range r.nodes.now() {
		if _, there := r.machines.now()[strings.TrimPrefix(node.Name, nodeName(""))]; !there {
			continue
		}
		for _, key := range []string{v1alpha1.LabelCandidateForUpdate, v1alpha1.LabelSelectedForUpdate, v1alpha1.LabelUpdateResult} {
			if node.Labels[key] != "" {
				r.Errorf("seed %d: %s has %s=%s:\n%s", r.seed, node.Name, key, node.Labels[key], r.tale())
			}
		}
		if node.Annotations[v1alpha1.AnnotationUpdateTo] != "" || node.Spec.Unschedulable {
			r.Errorf("seed %d: %s has left-overs of an update: %v", r.seed, node.Name, node)
		}
	}
	for _, m := range r.machines.now() {
		if m.Labels[v1alpha1.LabelUpdateResult] != "" {
			r.Errorf("seed %d: %s was transferred, and no set counts it:\n%s", r.seed, m.Name, r.tale())
		}
	}
	if text := r.deployment().Annotations[v1alpha1.AnnotationSelecting]; text != "" {
		r.Errorf("seed %d: %s are still about to be selected", r.seed, text)
	}
	for _, set := range r.sets.now() {
		if _, disabled := set.Labels[v1alpha1.LabelScaleUpDisabled]; disabled && set.Spec.Replicas > 0 {
			r.Errorf("seed %d: %s is still not allowed to create machines:\n%s", r.seed, set.Name, r.tale())
		}
	}
}

// TestEveryMachineStaysWhenUpdatedInPlace: without surge no machine is created and none deleted,
// and all are updated.
func TestEveryMachineStaysWhenUpdatedInPlace(t *testing.T) {
	for i := range worlds.Some(*seeds) {
		seed := *first + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := newRolling(t, seed, inPlaceUpdate("0", "1", auto), int32(1+seed%5))
			before := r.names()
			r.user(useTemplate("b"))
			r.storm(r.dice.IntN(600))
			if got := r.names(); got != before {
				t.Fatalf("seed %d: machines %s, want %s:\n%s", seed, got, before, r.tale())
			}
			r.withoutFaults(2 * time.Hour)
			if got := r.names(); got != before {
				t.Fatalf("seed %d: machines %s, want %s:\n%s", seed, got, before, r.tale())
			}
			r.mustBeDone()
			r.mustBeFree()
		})
	}
}

// TestInPlaceUnderFaults: with any actions of users during an update in place, when processes die,
// slots move, caches lag and writes are late, there are never too few machines nor too many, no
// machine is of a template that its VM does not have, and in the end all are of the last wanted
// template.
func TestInPlaceUnderFaults(t *testing.T) {
	strategies := []v1alpha1.MachineDeploymentStrategy{
		inPlaceUpdate("1", "0", auto), inPlaceUpdate("0", "1", auto), inPlaceUpdate("2", "1", auto), inPlaceUpdate("50%", "50%", auto),
	}
	underFaults(t, strategies, 300, 4*time.Hour, (*rolling).mustBeFree)
}

// TestEveryInterleavingOfAnUpdateInPlaceEndsTheSame runs deployment, sets, machines and the agents
// on them in every possible order, with a change by the user at every point. In each order the
// limits hold, and the update ends in the same state.
func TestEveryInterleavingOfAnUpdateInPlaceEndsTheSame(t *testing.T) {
	for name, tc := range map[string]struct {
		strategy v1alpha1.MachineDeploymentStrategy
		replicas int32
		then     func(*v1alpha1.MachineDeploymentSpec) // what the user requests at any moment after the first change
		changes  int
	}{
		"one missing":                   {inPlaceUpdate("0", "1", auto), 2, nil, 0},
		"one beyond":                    {inPlaceUpdate("1", "0", auto), 2, nil, 0},
		"two missing":                   {inPlaceUpdate("0", "2", auto), 2, nil, 0},
		"manual":                        {inPlaceUpdate("1", "1", manual), 2, nil, 0},
		"another template in between":   {inPlaceUpdate("0", "1", auto), 2, useTemplate("c"), 1},
		"back in between":               {inPlaceUpdate("0", "1", auto), 2, useTemplate("a"), 1},
		"back in between, one beyond":   {inPlaceUpdate("1", "0", auto), 1, useTemplate("a"), 1},
		"paused in between and resumed": {inPlaceUpdate("0", "1", auto), 2, func(s *v1alpha1.MachineDeploymentSpec) { s.Paused = !s.Paused }, 2},
		"fewer in between":              {inPlaceUpdate("0", "1", auto), 2, func(s *v1alpha1.MachineDeploymentSpec) { s.Replicas = 1 }, 1},
		"more in between":               {inPlaceUpdate("1", "0", auto), 1, func(s *v1alpha1.MachineDeploymentSpec) { s.Replicas = 2 }, 1},
		"rolling from some point on": {
			inPlaceUpdate("0", "1", auto), 2, func(s *v1alpha1.MachineDeploymentSpec) { s.Strategy = rollingUpdate("0", "1") }, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRolling(t, 1, tc.strategy, tc.replicas)
			r.instant = true
			r.user(useTemplate("b"))
			e := &explorer{T: t, seen: map[string]bool{}, outcomes: map[string]string{}, onPath: map[string]bool{}}
			e.explore(r, tc.then, tc.changes)
			if len(e.outcomes) != 1 {
				t.Errorf("%d ends: %v", len(e.outcomes), e.outcomes)
			}
			t.Logf("%d states", len(e.seen))
		})
	}
}

// TestInPlaceManual: with orchestration type Manual the machines are updated whose Nodes a user
// selects, and no others.
func TestInPlaceManual(t *testing.T) {
	for i := range worlds.Some(*seeds) {
		seed := *first + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := newRolling(t, seed, inPlaceUpdate("2", "1", manual), int32(1+seed%5))
			before := r.names()
			r.user(useTemplate("b"))
			r.storm(300)
			r.withoutFaults(time.Hour)
			for _, node := range r.nodes.now() {
				if node.Annotations[has] != "a" {
					t.Fatalf("seed %d: %s was updated without a selection by the user:\n%s", seed, node.Name, r.tale())
				}
			}
			for range 12 {
				r.userSelects()
				r.storm(r.dice.IntN(100))
				r.withoutFaults(8 * time.Minute)
			}
			if got := r.names(); got != before {
				t.Fatalf("seed %d: machines %s, want %s:\n%s", seed, got, before, r.tale())
			}
			r.mustBeDone()
			r.mustBeFree()
		})
	}
}

// userSelects has a user select one of the Nodes that are candidates.
func (r *rolling) userSelects() {
	for _, node := range sorted(r.nodes.now()) {
		if node.Labels[v1alpha1.LabelCandidateForUpdate] == "true" && node.Labels[v1alpha1.LabelSelectedForUpdate] == "" &&
			(r.instant || r.dice.IntN(2) == 0) {
			r.note("the user selects %s", node.Name)
			node = node.DeepCopy()
			node.Labels[v1alpha1.LabelSelectedForUpdate] = "true"
			r.nodes.update(node)
			return
		}
	}
}

// TestUpdatesInPlaceThatFail: their machines are replaced by new ones of the wanted template, and
// the rollout ends.
func TestUpdatesInPlaceThatFail(t *testing.T) {
	for i := range worlds.Some(*seeds) {
		seed := *first + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := newRolling(t, seed, inPlaceUpdate("1", "1", auto), 4)
			r.fails, r.steady = 2, false
			r.user(useTemplate("b"))
			r.storm(600)
			r.withoutFaults(3 * time.Hour)
			r.mustBeDone()
			r.mustBeFree()
		})
	}
}

// TestWritesOfADeploymentUpdatedInPlace: a write of a deployment except its status may cause a
// conflict of the autoscaler. Allowed are the new revision, and for each selection the record that
// Nodes are about to be selected, and then its removal.
func TestWritesOfADeploymentUpdatedInPlace(t *testing.T) {
	const replicas = 4
	for _, unavailable := range []string{"1", "2", "100%"} {
		t.Run(unavailable, func(t *testing.T) {
			r := newRolling(t, 1, inPlaceUpdate("0", unavailable, auto), replicas)
			r.user(useTemplate("b"))
			begin := len(r.deployments.history)
			r.withoutFaults(time.Hour)
			r.mustBeDone()
			writes, selections := 0, 0
			for i := begin; i < len(r.deployments.history); i++ {
				was, is := r.deployments.history[i-1][rolled], r.deployments.history[i][rolled]
				if maps.Equal(was.Annotations, is.Annotations) {
					continue
				}
				writes++
				if len(is.Annotations[v1alpha1.AnnotationSelecting]) > len(was.Annotations[v1alpha1.AnnotationSelecting]) {
					selections++
				}
			}
			t.Logf("%d writes for %d selections", writes, selections)
			if selections < 1 || selections > replicas || writes > 1+2*selections {
				t.Errorf("%d writes for %d selections of %d machines, want the revision and two for each selection:\n%s",
					writes, selections, replicas, r.tale())
			}
		})
	}
}

// TestDeletedInTheMiddleOfAnUpdateInPlace: at each stage of a Node, and with late writes, nothing
// is left in the end, and no Node is selected any more that was not about to be.
func TestDeletedInTheMiddleOfAnUpdateInPlace(t *testing.T) {
	for name, is := range map[string]moment{
		"a Node is about to be selected": {
			writes: func(obj metav1.Object) bool { return obj.GetLabels()[v1alpha1.LabelSelectedForUpdate] != "" },
		},
		"a Node is selected":        {shows: v1alpha1.NodeReasonSelectedForUpdate},
		"a Node is updated":         {shows: v1alpha1.NodeReasonReadyForUpdate},
		"an update has succeeded":   {shows: v1alpha1.NodeReasonUpdateSuccessful},
		"an update has failed":      {shows: v1alpha1.NodeReasonUpdateFailed},
		"a machine changes its set": {writes: isTransfer},
	} {
		for i := range worlds.Some(*seeds) {
			seed := *first + uint64(i)
			t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) {
				surge := string("01"[seed%2])
				r := newRolling(t, seed, inPlaceUpdate(surge, "1", auto), int32(2+seed%3))
				if is.shows == v1alpha1.NodeReasonUpdateFailed {
					r.fails = 1
				}
				r.predicts = seed%4 < 2
				r.user(useTemplate("b"))
				r.stormUntil(is)
				r.deleteIt()
				chosen := r.chosen()
				r.storm(300)
				r.withoutFaults(time.Hour)
				r.mustBeGone()
				for _, node := range sorted(r.nodes.now()) {
					if node.Labels[v1alpha1.LabelSelectedForUpdate] == "true" && !slices.Contains(chosen, node.Name) {
						t.Errorf("seed %d: %s was selected after that:\n%s", seed, node.Name, r.tale())
					}
				}
			})
		}
	}
}

// moment is a point in the middle of an update in place: an owner has sent a write, which is late,
// and has died; or a Node is in a stage of its update.
type moment struct {
	writes func(metav1.Object) bool
	shows  string
}

// isTransfer reports whether a write transfers a machine from another set.
func isTransfer(obj metav1.Object) bool {
	_, isMachine := obj.(*v1alpha1.Machine)
	return isMachine && obj.GetLabels()[v1alpha1.LabelUpdateResult] != ""
}

// stormUntil is a storm that ends at a moment.
func (r *rolling) stormUntil(is moment) {
	reached := false
	if is.writes != nil {
		r.delays = func(obj metav1.Object) bool {
			reached = reached || is.writes(obj)
			return is.writes(obj)
		}
		defer func() { r.delays = nil }()
	}
	for range 3000 {
		if reached = reached || slices.ContainsFunc(sorted(r.nodes.now()), func(n *corev1.Node) bool {
			return is.shows != "" && machinefacts.InPlaceStage(n) == is.shows
		}); reached {
			return
		}
		r.storm(1)
	}
	r.Fatalf("seed %d: that moment was not reached:\n%s", r.seed, r.tale())
}

// chosen returns the Nodes that are selected, or about to be.
func (r *rolling) chosen() (names []string) {
	noted := r.deployment().Annotations[v1alpha1.AnnotationSelecting]
	for _, node := range sorted(r.nodes.now()) {
		if node.Labels[v1alpha1.LabelSelectedForUpdate] == "true" ||
			strings.Contains(noted, strconv.Quote(node.Labels[v1alpha1.LabelMachineName])) {
			names = append(names, node.Name)
		}
	}
	return names
}

// TestLateSelection: a process dies after it has sent a selection of a Node, and the next one would
// select another Node by now. It selects the recorded one, and when the late write takes effect
// there is no second one.
func TestLateSelection(t *testing.T) {
	r := newRolling(t, 1, inPlaceUpdate("0", "1", auto), 3)
	r.user(useTemplate("b"))
	r.passDeployment()
	machines := sorted(r.machines.now())
	for _, m := range machines {
		r.updateInPlace(m.Name) // its label as a candidate is observed
	}
	r.setPhase(machines[0], v1alpha1.MachineUnknown) // it would be selected first
	r.least--                                        // for it
	r.delays = func(obj metav1.Object) bool { return obj.GetLabels()[v1alpha1.LabelSelectedForUpdate] != "" }
	r.passDeployment()
	if len(r.late) > 0 {
		t.Fatalf("a Node is selected although a machine is missing:\n%s", r.tale())
	}
	r.user(func(s *v1alpha1.MachineDeploymentSpec) { s.Strategy = inPlaceUpdate("0", "2", auto) })
	r.passDeployment()
	if len(r.late) != 1 {
		t.Fatalf("%d Nodes are about to be selected, want one:\n%s", len(r.late), r.tale())
	}
	r.user(func(s *v1alpha1.MachineDeploymentSpec) { s.Strategy = inPlaceUpdate("0", "1", auto) })
	r.replaceOwner()
	r.delays, r.least = nil, 2
	r.setPhase(r.machines.now()[machines[0].Name], v1alpha1.MachineRunning)
	r.passDeployment()
	r.late[0]()
	r.checkLimits()
	if r.isSelected(machines[0]) || !r.isSelected(machines[1]) {
		t.Errorf("another Node than the recorded one is selected:\n%s", r.tale())
	}
}
