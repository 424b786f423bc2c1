package fakecloud

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/drivertest"
)

// TestConformance: what tests rely on is what drivers guarantee.
func TestConformance(t *testing.T) {
	drivertest.Run(t, func(*testing.T) drivertest.Env {
		c := &Cloud{Clock: clock.RealClock{}.Now, Page: 3}
		live := func(kind driver.ResourceKind) (found []Resource) {
			for _, r := range c.Live() {
				if r.Kind == kind {
					found = append(found, r)
				}
			}
			return found
		}
		return drivertest.Env{
			Driver: c.Driver(), Class: &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}, MoreThanAPage: 4,
			VMs: func(*testing.T) (all []drivertest.VM) {
				for _, r := range live(driver.ResourceVM) {
					all = append(all, drivertest.VM{ProviderID: r.ID, MachineUID: r.MachineUID})
				}
				return all
			},
			EndVM: func(_ *testing.T, id string) {
				c.Change(func(all []*Resource) {
					for _, r := range all {
						if r.ID == id {
							c.end(r)
						}
					}
				})
			},
			DoubleVM: func(_ *testing.T, m *v1alpha1.Machine) {
				second := live(driver.ResourceVM)[0]
				second.ID, second.MachineUID = "test:///second", m.UID
				c.Add(second)
			},
			CreateBare: func(_ *testing.T, m *v1alpha1.Machine) string {
				bare := Resource{
					Resource: driver.Resource{Kind: driver.ResourceVM, ID: "test:///bare", Namespace: m.Namespace, Machine: m.Name}, Ready: true,
				}
				return c.Add(bare).ID
			},
			Leftovers: func(*testing.T) (uids []types.UID) {
				for _, r := range live(driver.ResourceNetworkInterface) {
					uids = append(uids, r.MachineUID)
				}
				return uids
			},
			Fail: func(_ *testing.T, how drivertest.Failure) (heal func()) {
				fault, supported := map[drivertest.Failure]Fault{
					drivertest.NoAnswer: {Hangs: true}, drivertest.LostAnswer: {Hangs: true, TakesEffect: true},
					drivertest.PartialCreate: {Code: driver.Internal}, drivertest.Unreachable: {Code: driver.Unavailable},
					drivertest.ServerError:   {Code: driver.Internal},
					drivertest.Throttled:     {Code: driver.Unavailable, Throttled: true, RetryAfter: drivertest.ThrottledFor},
					drivertest.QuotaExceeded: {Code: driver.ResourceExhausted}, drivertest.NoCapacity: {Code: driver.ResourceExhausted},
					drivertest.BadCredentials: {Code: driver.Unauthenticated}, drivertest.Forbidden: {Code: driver.PermissionDenied},
				}[how]
				if !supported {
					return nil
				}
				c.Leaves = how == drivertest.PartialCreate
				c.Fail(fault)
				return c.Work
			},
			OtherScopes: map[string]map[string][]byte{"account": {"account": []byte("another")}},
			Volumes: map[string]*corev1.PersistentVolumeSpec{"vol-1": {PersistentVolumeSource: corev1.PersistentVolumeSource{
				AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"},
			}}},
		}
	})
}
