package replica

import (
	"errors"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

func TestIsServed(t *testing.T) {
	const none = "no holder" // instead of ""
	for name, c := range map[string]struct {
		holders map[string]string // by Lease
		fails   string            // the Lease that cannot be read
		want    bool
	}{
		"no Leases": {want: true},
		"Leases of the fleet": {
			holders: map[string]string{v1alpha1.LeaseManager: "fleet", v1alpha1.LeaseMachineController: "fleet"}, want: true,
		},
		"released Leases": {
			holders: map[string]string{v1alpha1.LeaseManager: "", v1alpha1.LeaseMachineController: none}, want: true,
		},
		"another manager": {
			holders: map[string]string{v1alpha1.LeaseManager: "mcm", v1alpha1.LeaseMachineController: "fleet"},
		},
		"another controller": {
			holders: map[string]string{v1alpha1.LeaseManager: "fleet", v1alpha1.LeaseMachineController: "mc"},
		},
		"one Lease, another's":               {holders: map[string]string{v1alpha1.LeaseMachineController: "mc"}},
		"the manager's Lease cannot be read": {fails: v1alpha1.LeaseManager},
		"the controller's Lease cannot be read": {
			holders: map[string]string{v1alpha1.LeaseManager: "fleet"}, fails: v1alpha1.LeaseMachineController,
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := apiserver.Recording()
			// Leases of another namespace do not matter.
			put := func(namespace, name, holder string) {
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
				if holder != none {
					lease.Spec.HolderIdentity = &holder
				}
				apiserver.Add(server, lease)
			}
			put("other", v1alpha1.LeaseManager, "mcm")
			for lease, holder := range c.holders {
				put("n", lease, holder)
			}
			server.Fault(func(r apiserver.Request) error {
				if r.Name == c.fails {
					return errors.New("the server does not answer")
				}
				return nil
			})
			got, err := isServed(t.Context(), server.Core(), "fleet", "n")
			if got != c.want || (err != nil) != (c.fails != "") {
				t.Errorf("served: %t with error %v, want %t", got, err, c.want)
			}
		})
	}
}
