package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
)

// choice is one fact that a world can have, and what it is called.
type choice struct {
	name string
	make func(*World)
}

// had is the last operation of a machine of a phase.
var had = map[v1alpha1.MachinePhase]v1alpha1.LastOperation{
	"": {},
	v1alpha1.MachineCrashLoopBackOff: {
		Type: v1alpha1.MachineOperationCreate, State: v1alpha1.MachineStateFailed, ErrorCode: driver.Internal.String(),
	},
	v1alpha1.MachinePending:                 {Type: v1alpha1.MachineOperationCreate, State: v1alpha1.MachineStateProcessing},
	v1alpha1.MachineAvailable:               {Type: v1alpha1.MachineOperationCreate, State: v1alpha1.MachineStateSuccessful},
	v1alpha1.MachineRunning:                 {Type: v1alpha1.MachineOperationCreate, State: v1alpha1.MachineStateSuccessful},
	v1alpha1.MachineUnknown:                 {Type: v1alpha1.MachineOperationHealthCheck, State: v1alpha1.MachineStateProcessing},
	v1alpha1.MachineInPlaceUpdating:         {Type: v1alpha1.MachineOperationInPlaceUpdate, State: v1alpha1.MachineStateProcessing},
	v1alpha1.MachineInPlaceUpdateSuccessful: {Type: v1alpha1.MachineOperationInPlaceUpdate, State: v1alpha1.MachineStateSuccessful},
	v1alpha1.MachineInPlaceUpdateFailed:     {Type: v1alpha1.MachineOperationInPlaceUpdate, State: v1alpha1.MachineStateFailed},
	v1alpha1.MachineFailed:                  {Type: v1alpha1.MachineOperationHealthCheck, State: v1alpha1.MachineStateFailed},
	v1alpha1.MachineTerminating:             {Type: v1alpha1.MachineOperationDelete, State: v1alpha1.MachineStateProcessing},
}

// phaseChoices are the phases that a machine can be in, deleted or not.
func phaseChoices() (all []choice) {
	for _, phase := range slices.Sorted(maps.Keys(had)) {
		for _, deleted := range []bool{false, true} {
			if phase == v1alpha1.MachineTerminating && !deleted {
				continue
			}
			all = append(all, choice{fmt.Sprintf("phase: %s, deleted: %t", phaseName(phase), deleted), func(w *World) {
				w.Machine.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: phase, LastUpdateTime: metav1.NewTime(born)}
				w.Machine.Status.LastOperation = had[phase]
				if deleted {
					w.Machine.DeletionTimestamp = &metav1.Time{Time: born}
				}
			}})
		}
	}
	return all
}

// identities returns what can be recorded on a machine about its VM and its Node.
func identities() (all []choice) {
	for _, id := range []string{"", "cloud:///i-1"} {
		for _, name := range []string{"", "m"} {
			all = append(all, choice{fmt.Sprintf("VM: %q, Node: %q", id, name), func(w *World) {
				w.Machine.Spec.ProviderID, w.Machine.Labels = id, map[string]string{v1alpha1.LabelNode: name}
			}})
		}
	}
	return all
}

// worded are choices in the words of scenarios; "" leaves the fact as it is.
func worded(t *testing.T, key string, values ...string) (all []choice) {
	t.Helper()
	for _, value := range values {
		all = append(all, choice{key + ": " + value, func(w *World) {
			if value == "" {
				return
			}
			if err := facts[key](w, value); err != nil {
				t.Fatal(err)
			}
		}})
	}
	return all
}

// product has what there is to choose from for each fact that a phase can follow from.
func product(t *testing.T) [][]choice {
	t.Helper()
	return [][]choice{
		phaseChoices(),
		identities(),
		worded(t, "now", "5m", "10h"), // before and after all timeouts
		worded(t, "node", "", "absent", "ready", "not ready, read live", "ready, not claimed", "of another VM, read live",
			"of no VM, of another machine", "ready, being deleted",
			"ready, candidate, selected, in stage DrainSuccessful", "not ready, candidate, selected, updated",
			"ready, candidate, selected, not to be updated", "ready, read live"),
		worded(t, "vm", "", "absent", "gone", "uninitialized", "present", "hidden", "ending since 0s, asked 0s"),
		worded(t, "disruption", "", "allowed"),
		worded(t, "target", "", "none"),
		slices.Concat(
			worded(t, "cloud", "", "create_machine Internal", "create_machine ResourceExhausted"),
			worded(t, "trouble", "Unavailable"), worded(t, "class", "none"),
			[]choice{{"drained", func(w *World) { w.Drain.State = drain.Drained }}},
		),
	}
}

// eachChoice chooses all worlds of the product, one after the other.
func eachChoice(product [][]choice, chosen []choice, do func(chosen []choice)) {
	if len(product) == 0 {
		do(chosen)
		return
	}
	for _, c := range product[0] {
		eachChoice(product[1:], append(chosen, c), do)
	}
}

// worldOf returns the world of choices.
func worldOf(chosen []choice) World {
	w := fresh(func(w *World) { w.Token = TokenAbsent }) // that the token is there changes no phase
	for _, c := range chosen {
		c.make(&w)
	}
	return w
}

// TestEveryStepIsReported decides on all combinations of facts, also on those that occur only after
// a change by hand. A step from a phase to another needs a scenario, which puts it on the page; and
// the product is large enough to have all steps of scenarios. The short form decides on some of the
// combinations.
func TestEveryStepIsReported(t *testing.T) {
	steps, seen := reportedSteps(t), map[step]bool{}
	n, stride := 0, 1
	if testing.Short() {
		stride = 17 // a prime, so that the choices change in each dimension
	}
	eachChoice(product(t), nil, func(chosen []choice) {
		if n++; n%stride != 0 {
			return
		}
		w := worldOf(chosen)
		v := Decide(w)
		s := stepOf(w, v)
		if !s.leads() || seen[s] {
			return
		}
		seen[s] = true
		if !slices.ContainsFunc(steps, func(reported reportedStep) bool { return reported.step == s }) {
			var names []string
			for _, c := range chosen {
				names = append(names, c.name)
			}
			t.Errorf("a machine goes from %s to %s (ends: %t) with %s, and no scenario in testdata has it: %s",
				phaseName(s.from), phaseName(s.to), s.ends, v.Do, strings.Join(names, "; "))
		}
	})
	for _, s := range steps {
		if s.leads() && !seen[s.step] && stride == 1 {
			t.Errorf("no world of the product goes from %s to %s as %q does: it lacks a fact", phaseName(s.from), phaseName(s.to), s.scenario)
		}
	}
}
