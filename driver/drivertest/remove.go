package drivertest

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func testDeleteNothing(s *suite) {
	never := s.machine()
	s.mustRemove(never)
	m := s.machine()
	vm := s.mustCreate(m)
	s.mustRemove(made(m, vm))
	s.wantVMs(m, 0, "after the delete")
	s.mustRemove(made(m, vm))
	s.mustRemove(m)
}

func testDeleteByProviderID(s *suite) {
	one, other := s.machine(), s.machine()
	vmOfOne, vmOfOther := s.mustCreate(one), s.mustCreate(other)
	// The UID of one with the VM of the other: what the provider ID names goes, and nothing else.
	s.mustRemove(made(one, vmOfOther))
	s.wantVMs(other, 0, "after the delete by provider ID")
	s.wantVMs(one, 1, "after the delete of another VM")
	s.mustRemove(made(one, vmOfOne))
	s.wantVMs(one, 0, "after its delete")
}

func testDeleteByUID(s *suite) {
	m, bystander := s.machine(), s.machine()
	s.mustCreate(m)
	s.mustCreate(bystander)
	s.mustRemove(m)
	s.wantVMs(m, 0, "after the delete by UID")
	s.wantVMs(bystander, 1, "after the delete of another machine")
}

func testDeleteOrphan(s *suite) {
	m := s.machine()
	vm := s.mustCreate(m)
	orphan := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace}}
	s.mustRemove(made(orphan, vm))
	s.wantVMs(m, 0, "after the delete of the orphan")
}

func testDeleteConcurrently(s *suite) {
	m := s.machine()
	vm := s.mustCreate(m)
	var wg sync.WaitGroup
	for range concurrency {
		wg.Go(func() {
			ctx, cancel := s.bounded()
			defer cancel()
			_, _ = s.remove(ctx, made(m, vm)) // May fail where calls meet; the fleet would call again.
		})
	}
	wg.Wait()
	s.mustRemove(made(m, vm))
	s.wantVMs(m, 0, "after concurrent deletes")
}
