package drivertest

import (
	"context"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// maxPages is how many pages of resources the suite reads. No test creates so many resources.
const maxPages = 1000

// sweeper returns the driver's Sweeper, or skips the test.
func (s *suite) sweeper() driver.Sweeper {
	s.t.Helper()
	sweeper, ok := driver.SweeperOf(s.Driver)
	if !ok {
		s.t.Skip("the driver has no Sweeper")
	}
	return sweeper
}

func (s *suite) scopeRequest() driver.ScopeRequest {
	return driver.ScopeRequest{Class: s.Class, Secret: s.Secret, ControlCluster: s.controlCluster}
}

// in runs do with a class of another name, or in another namespace, and with another control
// cluster.
func (s *suite) in(namespace, class, controlCluster string, do func()) {
	oldClass, oldCluster := s.Class, s.controlCluster
	s.Class, s.controlCluster = s.Class.DeepCopy(), controlCluster
	s.Class.Namespace, s.Class.Name = namespace, class
	do()
	s.Class, s.controlCluster = oldClass, oldCluster
}

// page calls ListResources once.
func (s *suite) page(ctx context.Context, token string) (driver.ListResourcesResponse, driver.Code) {
	s.t.Helper()
	before := s.Class.DeepCopy()
	resp, err := s.sweeper().ListResources(ctx, driver.ListResourcesRequest{ScopeRequest: s.scopeRequest(), Continue: token})
	if diff := cmp.Diff(before, s.Class); diff != "" {
		s.t.Errorf("ListResources has changed the class (-before +after):\n%s", diff)
	}
	if err != nil && (len(resp.Items) > 0 || resp.Continue != "") {
		s.t.Errorf("ListResources returned %d resources and token %q together with %v; want nothing", len(resp.Items), resp.Continue, err)
	}
	return resp, s.check(driver.OpResources, err)
}

// resources reads all pages. tokens are those of the pages that were read; the first one is "".
func (s *suite) resources() (all []driver.Resource, tokens []string) {
	s.t.Helper()
	ctx, cancel := s.bounded()
	defer cancel()
	token := ""
	for len(tokens) < maxPages {
		resp, code := s.page(ctx, token)
		if code != driver.OK {
			s.t.Fatalf("ListResources: code %v, want OK", code)
		}
		if len(resp.Items) > driver.MaxResources {
			s.t.Errorf("ListResources returned %d resources, want at most %d", len(resp.Items), driver.MaxResources)
		}
		all, tokens = append(all, resp.Items...), append(tokens, token)
		if token = resp.Continue; token == "" {
			return all, tokens
		}
	}
	s.t.Fatalf("ListResources returned more than %d pages", maxPages)
	return nil, nil
}

// vmOf is how a sweep shows a machine's VM.
func vmOf(m *v1alpha1.Machine, vm driver.VM) driver.Resource {
	return driver.Resource{
		Kind: driver.ResourceVM, ID: vm.ProviderID, Namespace: m.Namespace, Machine: m.Name, MachineUID: m.UID, NodeName: vm.NodeName,
	}
}

// mustCreateNew creates the VM of a new machine, and returns how a sweep shows it.
func (s *suite) mustCreateNew() driver.Resource {
	s.t.Helper()
	m := s.machine()
	return vmOf(m, s.mustCreate(m))
}

// wantResources fails the test unless a sweep lists exactly those.
func (s *suite) wantResources(when string, want ...driver.Resource) {
	s.t.Helper()
	got, _ := s.resources()
	byID := cmpopts.SortSlices(func(a, b driver.Resource) int { return strings.Compare(a.ID, b.ID) })
	if diff := cmp.Diff(want, got, byID, cmpopts.EquateEmpty()); diff != "" {
		s.t.Fatalf("ListResources %s (-want +got):\n%s", when, diff)
	}
}

// exists reports whether the cloud has the VM.
func (s *suite) exists(r driver.Resource) bool {
	s.t.Helper()
	return slices.ContainsFunc(s.VMs(s.t), func(vm VM) bool { return vm.ProviderID == r.ID })
}

// The ID of the control cluster may become known between two creates for one machine.
func testCreateBeforeControlCluster(s *suite) {
	m := s.machine()
	s.controlCluster = ""
	first := s.mustCreate(m)
	s.controlCluster = controlCluster
	if second := s.mustCreate(m); second.ProviderID != first.ProviderID {
		s.t.Errorf("with the ID of the control cluster the create returned %s, before %s", second.ProviderID, first.ProviderID)
	}
	s.wantVMs(m, 1, "after a create with the ID of the control cluster")
}

func testScope(s *suite) {
	sweeper, _ := driver.SweeperOf(driver.Checked(s.Driver)) // which checks the text
	_ = s.sweeper()
	scope := func() string {
		s.t.Helper()
		got, err := sweeper.Scope(s.scopeRequest())
		if code := s.check(driver.OpScope, err); code != driver.OK {
			s.t.Fatalf("Scope: %v", err)
		}
		for _, key := range s.Confidential {
			if value := strings.TrimSpace(string(s.Secret[key])); value != "" && strings.Contains(got, value) {
				s.t.Errorf("the scope shows the value of the key %q of the Secret", key)
			}
		}
		return got
	}
	own := scope()
	s.in(s.Class.Namespace, "another-class", controlCluster, func() {
		if got := scope(); got != own {
			s.t.Errorf("scope of another class of the account: %q, want %q", got, own)
		}
	})
	seen := map[string]string{own: "the Secret"}
	for name, secret := range s.OtherScopes {
		s.Secret = secret
		got := scope()
		if other, twice := seen[got]; twice {
			s.t.Errorf("%s and %s have the same scope %q", name, other, got)
		}
		seen[got] = name
		if again := scope(); again != got {
			s.t.Errorf("%s: scope %q, and then %q", name, got, again)
		}
	}
	if len(s.OtherScopes) == 0 {
		s.t.Log("skipped in part: Env.OtherScopes is not set")
	}
}

func testSweepList(s *suite) {
	_ = s.sweeper()
	s.wantResources("of an empty account")
	namespace := s.Class.Namespace
	own := []driver.Resource{s.mustCreateNew(), s.mustCreateNew()}
	s.in(namespace, "another-class", controlCluster, func() { own = append(own, s.mustCreateNew()) })
	var ofOtherNamespace, ofOtherCluster driver.Resource
	s.in("of-"+namespace, s.Class.Name, controlCluster, func() { ofOtherNamespace = s.mustCreateNew() })
	s.in(namespace, s.Class.Name, "another-cluster", func() { ofOtherCluster = s.mustCreateNew() })
	s.in(namespace, s.Class.Name, "", func() { s.mustCreateNew() }) // created while the control cluster was not known
	s.wantResources("of a class", own...)
	s.in(namespace, "another-class", controlCluster, func() { s.wantResources("of another class", own...) })
	s.in("of-"+namespace, s.Class.Name, controlCluster, func() { s.wantResources("of another namespace", ofOtherNamespace) })
	s.in(namespace, s.Class.Name, "another-cluster", func() { s.wantResources("of another control cluster", ofOtherCluster) })
	s.Class = s.Class.DeepCopy()
	s.Class.ProviderSpec.Raw = []byte(`"a provider spec that cannot work"`)
	s.wantResources("of a class with a bad provider spec", own...)
	if s.EndVM != nil {
		s.EndVM(s.t, own[0].ID)
		s.wantResources("after the end of a VM", own[1:]...)
	}
}

func testSweepWithoutTags(s *suite) {
	_ = s.sweeper()
	if s.CreateWithout == nil {
		s.t.Skip("Env.CreateWithout is not set")
	}
	own := s.mustCreateNew()
	for _, tag := range []Tag{NamespaceTag, MachineTag, MachineUIDTag, ControlClusterTag} {
		s.CreateWithout(s.t, s.machine(), controlCluster, tag)
		s.wantResources("next to a VM without the "+string(tag), own)
	}
}

func testSweepPages(s *suite) {
	_ = s.sweeper()
	if s.MoreThanAPage == 0 {
		s.t.Skip("Env.MoreThanAPage is not set")
	}
	created := s.fill(s.MoreThanAPage)
	got, tokens := s.resources()
	listed := map[string]string{}
	for _, r := range got {
		listed[r.ID] = r.Machine
	}
	if diff := cmp.Diff(created, listed); diff != "" || len(got) != len(created) || len(tokens) < 2 {
		s.t.Errorf("ListResources returned %d VMs on %d pages (-want +got):\n%s", len(got), len(tokens), diff)
	}
}

func testSweepHalf(s *suite) {
	_ = s.sweeper()
	if s.MoreThanAPage == 0 {
		s.t.Skip("Env.MoreThanAPage is not set")
	}
	s.fill(s.MoreThanAPage)
	_, tokens := s.resources()
	defer s.fail(SecondPage)()
	ctx, cancel := s.bounded()
	defer cancel()
	if _, code := s.page(ctx, tokens[1]); code == driver.OK {
		s.t.Error("ListResources of a page that the cloud did not return: code OK, want an error")
	}
}

func testSweepLeftovers(s *suite) {
	_ = s.sweeper()
	namespace := s.Class.Namespace
	s.in("of-"+namespace, s.Class.Name, controlCluster, func() { s.failPartly(s.machine()) })
	s.in(namespace, s.Class.Name, "another-cluster", func() { s.failPartly(s.machine()) })
	s.wantResources("next to left-overs of another namespace and of another control cluster")
	want := map[types.UID]int{}
	for range max(1, s.MoreThanAPage) {
		m := s.machine()
		s.failPartly(m)
		want[m.UID] = s.leftoversOf(m)
	}
	all, _ := s.resources()
	got := map[types.UID]int{}
	for _, r := range all {
		got[r.MachineUID]++
		if r.Kind == driver.ResourceVM || r.NodeName != "" || r.Namespace != namespace ||
			r.Machine != strings.TrimPrefix(string(r.MachineUID), uidPrefix) {
			s.t.Errorf("a left-over is listed as %+v", r)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("left-overs by the UID of their machine (-want +got):\n%s", diff)
	}
}
