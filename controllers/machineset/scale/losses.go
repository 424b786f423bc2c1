package scale

import (
	"fmt"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// recordLoss records that a machine has failed and is about to be deleted. A set whose machines
// fail as soon as they are created, because of a timeout in its template for example, would else
// create and delete VMs without end.
func recordLoss(w World, in *machinefacts.Intents, m *v1alpha1.Machine) {
	if ordinal, ok := machinefacts.OrdinalIn(w.Set, m); ok {
		in.Losses = in.Losses.Then(ordinal, nextOrdinal(w, *in), w.Set.Generation, w.Now)
	}
}

// losses returns the failures in a row that delay the creation of machines; nil when there are
// none: a single failure delays nothing.
func losses(w World) *machinefacts.Losses {
	in, err := machinefacts.ReadIntents(w.Set)
	if err != nil || !in.Losses.Lasts(w.Set.Generation, w.Now) || in.Losses.Count < 2 {
		return nil
	}
	return in.Losses
}

// creationDelayed returns the condition while failures in a row delay the creation of machines.
func creationDelayed(w World) machinefacts.Condition {
	l := losses(w)
	if l == nil {
		return machinefacts.Condition{}
	}
	return machinefacts.True(v1alpha1.ReasonMachinesFailEarly,
		fmt.Sprintf("%d times in a row a machine failed soon after its creation; the next is not created before %s; "+
			"Events SuccessfulDelete of the MachineSet name the machines and why they failed; "+
			"correct the template or its MachineClass", l.Count, l.Until.UTC().Format(time.RFC3339)))
}

// lossesChange returns when, from now, a machine may be created, or the failures no longer count; 0
// when neither is about to happen.
func lossesChange(w World) time.Duration {
	l := losses(w)
	if l == nil {
		return 0
	}
	if wait := l.Wait(w.Set.Generation, w.Now); wait > 0 {
		return wait
	}
	return l.Until.Add(machinefacts.EarlyFailure).Sub(w.Now)
}
