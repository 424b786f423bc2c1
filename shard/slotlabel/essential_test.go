package slotlabel

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// Every replica caches all Nodes without a machine and all unlabeled objects, so the transform must
// keep little of each.
func TestLittleIsKeptOfUnlabeledObjects(t *testing.T) {
	large := func(m *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
		m.Labels["zone"] = "z"
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, "note", strings.Repeat("x", 10_000))
		m.Finalizers, m.GenerateName, m.Generation = []string{"keep"}, "m-", 7
		m.CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
		m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1("{}")}}
		return m
	}
	// bare is an object with only what decides its slot: its identity, its parent, and of its labels
	// the slot and, of a machine, the name of its Node, and of a Node the machine that it is bound to.
	bare := func(kind policy.Kind, name, slot, parent string) *metav1.PartialObjectMetadata {
		m := meta(kind, name, slot, parent)
		if delete(m.Labels, "pool"); len(m.Labels) == 0 {
			m.Labels = nil
		}
		return m
	}
	for _, tc := range []struct {
		name                 string
		kind                 policy.Kind
		object, slot, parent string
	}{
		{"a foreign Node", policy.Node, "foreign", "", ""},
		{"a Node with a invalid slot", policy.Node, "odd", "9", ""},
		{"a Node that is bound", policy.Node, "node-m", "", ""},
		{"a machine", policy.Machine, "m", "", "s"},
		{"a machine with an invalid slot", policy.Machine, "m", "9", "s"},
		{"a MachineSet", policy.Set, "s", "", "1"},
		{"a MachineDeployment", policy.Deployment, "1", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := apiserver.Recording()
				stored := apiserver.Add(cluster, large(meta(tc.kind, tc.object, tc.slot, tc.parent)))
				w, err := NewWatch(cluster.Metadata(), cluster.Metadata(), "", 4)
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				if err := w.Start(ctx, func() {}); err != nil {
					t.Fatal(err)
				}
				kept := bare(tc.kind, tc.object, tc.slot, tc.parent)
				kept.ResourceVersion, kept.TypeMeta = stored.ResourceVersion, metav1.TypeMeta{
					APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata",
				}
				want := []any{kept}
				if diff := cmp.Diff(want, w.informers[tc.kind].GetStore().List()); diff != "" {
					t.Errorf("kept (-want +got):\n%s", diff)
				}
			})
		})
	}
}
