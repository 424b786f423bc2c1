package machine

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// TestTheTaintOfAnUpdatedNodeCanBeOmitted: by the setting, and by the annotation of the machine's
// root, which has precedence.
func TestTheTaintOfAnUpdatedNodeCanBeOmitted(t *testing.T) {
	for name, tc := range map[string]struct {
		omit       bool
		root       bool
		annotation string
		want       bool
	}{
		"as in Gardener, without a root":  {want: true},
		"as in Gardener":                  {root: true, want: true},
		"omitted, without a root":         {omit: true},
		"omitted":                         {omit: true, root: true},
		"omitted for one root":            {root: true, annotation: "false"},
		"omitted, and added for one root": {omit: true, root: true, annotation: "true", want: true},
		"a value that is no bool":         {root: true, annotation: "maybe", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.process.parents.noComponentsTaint = tc.omit
				var owners []metav1.OwnerReference
				if tc.root {
					set := apiserver.Add(b.server, &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
						Namespace: "n", Name: "root", Annotations: map[string]string{v1alpha1.AnnotationComponentsTaint: tc.annotation},
					}})
					owners = []metav1.OwnerReference{{Kind: "MachineSet", Name: "root", UID: set.UID, Controller: new(true)}}
				}
				b.create(func(m *v1alpha1.Machine) { m.OwnerReferences = owners })
				b.becomes(v1alpha1.MachineRunning, time.Minute)
				b.selects()
				b.becomes(v1alpha1.MachineInPlaceUpdating, 2*time.Second)
				b.labelNode(v1alpha1.LabelUpdateResult, v1alpha1.UpdateResultSuccessful)
				b.becomes(v1alpha1.MachineRunning, 2*time.Second)
				b.pass(time.Minute)
				if node := b.node(); machinefacts.AwaitsComponents(node) != tc.want || node.Labels[v1alpha1.LabelUpdateResult] != "" {
					t.Errorf("taints %v, labels %v; want the taint: %v", node.Spec.Taints, node.Labels, tc.want)
				}
			})
		})
	}
}
