package view

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// waitsOf returns what a machine waits for.
func waitsOf(s Snapshot, m *v1alpha1.Machine, p parents) (waits []Wait) {
	if w, waiting := ownership(s, p); waiting {
		waits = append(waits, w)
	}
	if cause, wait := lifecycle.WhileSetAside(m, s.Now); cause != nil {
		waits = append(waits, Wait{For: cause.Message, Until: s.Now.Add(wait), Then: "it is processed again"})
	}
	if machinefacts.IsPreserved(m, s.Now) {
		waits = append(waits, Wait{
			For:   "the end of its preservation (" + machinefacts.PreserveValue(m) + ")",
			Until: m.Status.CurrentStatus.PreserveExpiryTime.Time, Then: "it continues as any other; if it has failed, it is replaced",
		})
	}
	return append(waits, waitsInPhase(s, m, p)...)
}

// ownership returns whether a machine waits for a replica that reconciles it.
func ownership(s Snapshot, p parents) (w Wait, waiting bool) {
	switch o := p.owner; {
	case o.Slot == nil:
		return Wait{For: "a slot: it has no slot label, so that no replica reconciles it; its Events NotAlone, NotSelected or NotLabeled have " +
			"the cause"}, true
	case s.Misses(MissingLeases) || o.State == "" || o.State == Held || o.State == Moving:
		return Wait{}, false
	case o.State == Silent:
		return Wait{For: fmt.Sprintf("slot %d to be taken over: its holder %s is silent", *o.Slot, o.Session)}, true
	default:
		return Wait{For: fmt.Sprintf("a holder of slot %d, which is in the state %s", *o.Slot, o.State)}, true
	}
}

func waitsInPhase(s Snapshot, m *v1alpha1.Machine, p parents) []Wait {
	switch StateOf(m) {
	case string(v1alpha1.MachineTerminating):
		return []Wait{deletionOf(s, m)}
	case phaseCreating, string(v1alpha1.MachineCrashLoopBackOff):
		return creationOf(s, m)
	case string(v1alpha1.MachinePending):
		node := "a Node"
		if name := m.Labels[v1alpha1.LabelNode]; name != "" {
			node = "Node " + name
		}
		return []Wait{{
			For: node + " to join and be Ready", Until: machinefacts.CreationDeadline(m, s.Timeouts.Creation),
			Then: "it has failed, and is replaced",
		}}
	case string(v1alpha1.MachineUnknown):
		return recoveryOf(s, m, p)
	case string(v1alpha1.MachineFailed), string(v1alpha1.MachineInPlaceUpdateFailed):
		if machinefacts.IsKept(m, s.Now) {
			return nil
		}
		return []Wait{{For: "its deletion by its MachineSet, " + disruptionOf(m, p)}}
	case string(v1alpha1.MachineInPlaceUpdating):
		return []Wait{{
			For:   "the agent on its Node to report the result of its update in place",
			Until: machinefacts.InPlaceUpdateDeadline(m, s.Timeouts.InPlaceUpdate), Then: "the update has failed",
		}}
	case string(v1alpha1.MachineInPlaceUpdateSuccessful):
		return []Wait{{
			For:   "its Node to be Ready after the update in place",
			Until: machinefacts.InPlaceUpdateDeadline(m, s.Timeouts.InPlaceUpdate), Then: "it is unhealthy",
		}}
	}
	return nil
}

// deletionOf returns what a machine that is being deleted waits for.
func deletionOf(s Snapshot, m *v1alpha1.Machine) Wait {
	order := drain.ForDeletion(m, drain.Settings{Timeout: s.Timeouts.Drain, MaxEvictRetries: s.Timeouts.MaxEvictRetries})
	name := m.Labels[v1alpha1.LabelNode]
	hasNode := name != "" && (s.Misses(MissingNodes) || slices.ContainsFunc(s.Nodes, func(n *corev1.Node) bool { return n.Name == name }))
	if !hasNode || order.Force {
		return Wait{For: "its VM to be deleted, and then its Node"}
	}
	return Wait{
		For:   "its Node to be drained, and then its VM to be deleted (kubectl mcf drain " + name + " shows the pods)",
		Until: order.Since.Add(order.Timeout), Then: "the drain is forced, unless it was before: pods that are left are deleted without grace",
	}
}

// creationOf returns what a machine without a VM waits for.
func creationOf(s Snapshot, m *v1alpha1.Machine) []Wait {
	deadline := machinefacts.CreationDeadline(m, s.Timeouts.Creation)
	waits := []Wait{{For: "its VM to be created", Until: deadline, Then: "it has failed, and is replaced"}}
	if at := lifecycle.RetryAt(m); !at.IsZero() {
		waits = append(waits, Wait{
			For: "the next call of the cloud, because the last one has failed", Until: at, Then: "the VM is requested again",
		})
	}
	return waits
}

// recoveryOf returns what an unhealthy machine waits for.
func recoveryOf(s Snapshot, m *v1alpha1.Machine, p parents) []Wait {
	w := Wait{For: "its Node to be Ready again"}
	deadline, ok := machinefacts.HealthDeadline(m, s.Timeouts.Health)
	if !ok {
		w.For += "; it has no health timeout"
		return []Wait{w}
	}
	w.Until, w.Then = deadline, "it may fail and be replaced, "+disruptionOf(m, p)
	return []Wait{w}
}

// disruptionOf returns whether the root of a machine has a disruption for it.
func disruptionOf(m *v1alpha1.Machine, p parents) string {
	var root metav1.Object
	if p.set != nil {
		root = p.set
	}
	if p.deployment != nil {
		root = p.deployment
	}
	switch {
	case root == nil:
		return "and nothing replaces it: it has no MachineSet"
	case machinefacts.NeverRan(m):
		return "which needs no disruption, because it never ran"
	}
	disruptions, err := disruption.ReadDisruptions(root)
	if err != nil {
		return "unless the disruptions of its root cannot be read: " + err.Error()
	}
	if disruption.Allows(disruptions, m) {
		return "for which its root has recorded a disruption"
	}
	if n := len(disruptions); n > 0 {
		return fmt.Sprintf("when its root records a disruption for it; that has one for %d other machines now", n)
	}
	return "when its root records a disruption for it; disruption budgets and circuit breakers decide that"
}
