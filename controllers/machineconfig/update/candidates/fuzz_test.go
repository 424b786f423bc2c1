package candidates

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// FuzzForgedNode: regardless of what a kubelet writes into the annotations of its Node, no other
// Node of the pool is assigned anything beyond maxUnavailable, no two drains begin, each is
// assigned the pool's target only, and messages are bounded.
func FuzzForgedNode(f *testing.F) {
	f.Add("a", "a", "done", "", "", "", "", "")
	f.Add("", "", "", "", "drain-b", "", "", "")
	f.Add("b", "b", "done", "", "drain-b", "drain-a", "2126-01-01T00:00:00Z", "p")
	f.Add("c", "c", "Degraded", "x\n", "uncordon-c", "", "soon", "")
	f.Add("x", "x", "Unreconcilable", "\u202e", "drain-", "drain-", "", "other")
	f.Fuzz(func(t *testing.T, current, desired, state, reason, request, answered, since, cordonedBy string) {
		prefix := v1alpha1.DaemonPrefix
		forged := node(t, []string{"forged"})
		maps.Copy(forged.Annotations, map[string]string{
			prefix.CurrentConfig(): current, prefix.DesiredConfig(): desired, prefix.State(): state, prefix.Reason(): reason,
			prefix.DesiredDrain(): request, prefix.LastAppliedDrain(): answered,
			v1alpha1.AnnotationDrainSince: since, v1alpha1.AnnotationCordonedBy: cordonedBy,
		})
		w := World{Now: start, Live: true, Prefix: prefix, Pool: &v1alpha1.MachineConfigPool{}}
		w.Pool.Status = v1alpha1.MachineConfigPoolStatus{
			CurrentMachineConfig: "b", CompletedMachineConfig: "a", AbandonedMachineConfigs: []string{"c"},
		}
		w.Nodes = []*corev1.Node{node(t, []string{"waits"}), asking(t, "drain-b", "updates", "desired=b", "state=working"), forged}
		v := Decide(w)
		for _, a := range v.Assign {
			if a.Node != forged || a.Config != "b" {
				t.Errorf("Node %s is assigned %q", a.Node.Name, a.Config)
			}
		}
		begins := 0
		for _, r := range v.Requests {
			if r.Begins() {
				begins++
			}
			if r.Node.Name == "updates" && r.Do != Drain && r.Do != Wait || r.Node.Name == "waits" {
				t.Errorf("Node %s: %s", r.Node.Name, r.Do)
			}
		}
		if begins > 1 {
			t.Errorf("%d drains begin", begins)
		}
		for _, c := range v.Status.Conditions {
			if len(c.Message) > bounded.Message {
				t.Errorf("condition %s has a message of %d bytes", c.Type, len(c.Message))
			}
		}
	})
}
