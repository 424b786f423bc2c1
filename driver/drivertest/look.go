package drivertest

import (
	"sync"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

func testStatusAfterEnd(s *suite) {
	m := s.machine()
	vm := s.mustCreate(m)
	if s.EndVM != nil {
		s.EndVM(s.t, vm.ProviderID)
	} else {
		s.mustRemove(created(m, vm))
	}
	s.wantStatus(m, driver.NotFound, "by UID, after its end")
	s.wantStatus(created(m, vm), driver.NotFound, "by provider ID, after its end")
}

func testNotShownYet(s *suite) {
	if s.Hide == nil {
		s.t.Skip("Env.Hide is not set")
	}
	m := s.machine()
	show := s.Hide(s.t)
	ctx, cancel := s.bounded()
	defer cancel()
	resp, err := s.Driver.CreateMachine(ctx, driver.CreateMachineRequest{Target: s.target(m), UserData: s.UserData})
	if err != nil {
		s.t.Fatalf("CreateMachine: %v", err)
	}
	noted := created(m, resp.VM)
	noted.Status.LastKnownState = resp.LastKnownState
	if _, code := s.status(ctx, noted); code == driver.NotFound {
		s.t.Error("GetMachineStatus of a VM that was just created: NotFound")
	}
	for _, m := range []*v1alpha1.Machine{noted, withoutProviderID(noted)} {
		if gone, code := s.remove(ctx, m); gone {
			s.t.Errorf("DeleteMachine of a VM that was just created, with provider ID %q: gone, code %v", m.Spec.ProviderID, code)
		}
	}
	show()
	s.mustRemove(m) // without the note, as long after the create
	s.wantVMs(m, 0, "after the delete")
}

func withoutProviderID(m *v1alpha1.Machine) *v1alpha1.Machine {
	m = m.DeepCopy()
	m.Spec.ProviderID = ""
	return m
}

func testStatusOfSeveral(s *suite) {
	if s.DoubleVM == nil {
		s.t.Skip("Env.DoubleVM is not set")
	}
	m := s.machine()
	s.mustCreate(m)
	s.DoubleVM(s.t, m)
	s.wantVMs(m, 2, "after Env.DoubleVM")
	s.wantStatus(m, driver.OutOfRange, "with two VMs")
	for range s.MoreThanAPage {
		s.DoubleVM(s.t, m)
	}
	s.wantStatus(m, driver.OutOfRange, "with more VMs than are on a page")
	s.mustRemove(m)
	s.wantVMs(m, 0, "after a delete without provider ID")
}

// fill creates VMs, and returns what ListMachines has to return of them.
func (s *suite) fill(count int) map[string]string {
	s.t.Helper()
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		want  = make(map[string]string, count)
		slots = make(chan struct{}, concurrency)
	)
	for range count {
		m := s.machine()
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := s.bounded()
			defer cancel()
			vm, code := s.create(ctx, m)
			if code != driver.OK {
				s.t.Errorf("CreateMachine(%s): code %v, want OK", m.Name, code)
			}
			mu.Lock()
			defer mu.Unlock()
			want[vm.ProviderID] = m.Name
		})
	}
	wg.Wait()
	return want
}

// wantList fails the test unless ListMachines shows exactly those VMs.
func (s *suite) wantList(want map[string]string) {
	s.t.Helper()
	ctx, cancel := s.bounded()
	defer cancel()
	got, code := s.list(ctx)
	if code != driver.OK {
		s.t.Fatalf("ListMachines: code %v, want OK", code)
	}
	if len(got) == 0 && len(want) == 0 {
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("ListMachines (-want +got):\n%s", diff)
	}
}

func testList(s *suite) {
	s.wantList(nil)
	s.wantList(s.fill(3))
}

func testListPages(s *suite) {
	if s.MoreThanAPage == 0 {
		s.t.Skip("Env.MoreThanAPage is not set")
	}
	s.wantList(s.fill(s.MoreThanAPage))
}

func testListHalf(s *suite) {
	if s.MoreThanAPage == 0 {
		s.t.Skip("Env.MoreThanAPage is not set")
	}
	want := s.fill(s.MoreThanAPage)
	heal := s.fail(SecondPage)
	ctx, cancel := s.bounded()
	defer cancel()
	if got, code := s.list(ctx); code == driver.OK || len(got) > 0 {
		s.t.Errorf("ListMachines without the second page: code %v and %d VMs; want an error and none", code, len(got))
	}
	heal()
	s.wantList(want)
}

func testVolumes(s *suite) {
	foreign := &corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
		CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.of-nobody.example", VolumeHandle: "foreign"},
	}}
	local := &corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/data"},
	}}
	specs, want := []*corev1.PersistentVolumeSpec{foreign, {}}, map[string]bool{}
	for id, spec := range s.Volumes {
		specs, want[id] = append(specs, spec), true
	}
	ctx, cancel := s.bounded()
	defer cancel()
	resp, err := s.Driver.GetVolumeIDs(ctx, driver.GetVolumeIDsRequest{Volumes: append(specs, local)})
	switch s.check(driver.OpVolumeIDs, err) {
	case driver.OK:
	case driver.Unimplemented:
		s.t.Skip("the driver has no volumes")
	default:
		s.t.Fatalf("GetVolumeIDs: %v", err)
	}
	got := map[string]bool{}
	for _, id := range resp.IDs {
		got[id] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("GetVolumeIDs (-want +got):\n%s", diff)
	}
}
