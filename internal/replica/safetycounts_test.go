package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestLeaderCounts: complete replicas end a freeze that was the fleet's, and annotate the Nodes
// that no machine has ever had and no others, unless the flags switch that off.
func TestLeaderCounts(t *testing.T) {
	for name, on := range map[string]bool{"switched on": true, "switched off": false} {
		t.Run(name, func(t *testing.T) {
			o := replicaOptions()
			o.Machine.CreationTimeout, o.Safety.OrphanVMsPeriod, o.Safety.OvershootPeriod = 2*time.Minute, time.Minute, time.Minute
			if !on {
				o.Safety.OrphanVMsPeriod, o.Safety.OvershootPeriod = 0, 0
			}
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newTrial(t, o, 1, nil)
				defer r.end()
				r.createUnmanaged()
				r.createClass("a")
				r.putRoot("a", "d", 2)
				for _, replica := range []string{"fleet-0", "fleet-1"} {
					r.start(replica)
				}
				if !r.run(5*time.Minute, func() bool { return r.missing() == "" }) {
					t.Fatal(r.missing(), r.wrong)
				}
				set := r.control.List("machinesets")[0].GetName()
				r.control.Edit("machinesets", "a", set, func(u *unstructured.Unstructured) {
					labels, annotations := u.GetLabels(), u.GetAnnotations()
					labels[v1alpha1.LabelFreeze], annotations[v1alpha1.AnnotationOvershooting] = "True", "too many"
					u.SetLabels(labels)
					u.SetAnnotations(annotations)
				})
				r.run(5*time.Minute, nil)
				if frozen := r.control.Get("machinesets", "a", set).GetLabels()[v1alpha1.LabelFreeze] == "True"; frozen == on {
					t.Errorf("frozen: %t", frozen)
				}
				for _, node := range r.target.List("nodes") {
					_, bound := v1alpha1.MachineOf(node)
					if annotated := node.GetAnnotations()[v1alpha1.AnnotationNotManaged] == "1"; annotated != (on && !bound) {
						t.Errorf("Node %s, which is a machine's: %t, is annotated: %t", node.GetName(), bound, annotated)
					}
				}
				if r.wrong != "" {
					t.Error(r.wrong)
				}
			})
		})
	}
}
