package aws

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/aws/ec2test"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/drivertest"
)

// world is a cloud and a driver under one clock.
type world struct {
	*site
	clock  *clocktesting.FakePassiveClock
	driver *Driver
}

// newWorld returns a world whose cloud shows instances after some time.
func newWorld(t *testing.T, change func(*ec2test.Settings)) *world {
	t.Helper()
	s := settings()
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	s.Clock = clock
	if change != nil {
		change(&s)
	}
	w := &world{site: serve(t, s), clock: clock}
	w.driver = w.site.driver(t, func(cfg *Config) { cfg.Clock = clock })
	return w
}

func (w *world) wait(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

// target returns a machine that was created now.
func (w *world) target() driver.Target {
	target := targetOf(validSpec)
	target.Machine.CreationTimestamp = metav1.NewTime(w.clock.Now())
	return target
}

// create creates a VM, and records the answer on the machine as the fleet does.
func (w *world) create(t *testing.T, target driver.Target) error {
	t.Helper()
	resp, err := w.driver.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: target, UserData: []byte("data")})
	if resp.LastKnownState != "" {
		target.Machine.Status.LastKnownState = resp.LastKnownState
	}
	if err == nil {
		target.Machine.Spec.ProviderID = resp.ProviderID
	}
	return err
}

func (w *world) mustCreate(t *testing.T, target driver.Target) {
	t.Helper()
	if err := w.create(t, target); err != nil {
		t.Fatal(err)
	}
}

func (w *world) wantLiving(t *testing.T, want int, when string) {
	t.Helper()
	if got := len(w.Living()); got != want {
		t.Fatalf("%s: %d VMs, want %d", when, got, want)
	}
}

// A VM that the cloud does not show yet is not absent.
func TestVMThatIsNotShownYet(t *testing.T) {
	w := newWorld(t, func(s *ec2test.Settings) { s.VisibleAfter = 30 * time.Second })
	target := w.target()
	w.mustCreate(t, target)
	w.wait(time.Second)
	if _, err := w.driver.GetMachineStatus(t.Context(),
		driver.GetMachineStatusRequest{Target: target}); driver.CodeOf(err) != driver.Unavailable || !driver.IsPending(err) {
		t.Errorf("status: %v, want Unavailable that is pending", err)
	}
	if _, err := w.driver.InitializeMachine(t.Context(),
		driver.InitializeMachineRequest{Target: target}); driver.CodeOf(err) != driver.Unavailable || !driver.IsPending(err) {
		t.Errorf("initialize: %v, want Unavailable that is pending", err)
	}
	if resp, err := w.driver.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: target}); err != nil || resp.Gone {
		t.Errorf("delete: gone=%t, %v; want it to be called again", resp.Gone, err)
	}
	w.mustCreate(t, target)
	w.wantLiving(t, 1, "after a create that was repeated")
	w.wait(time.Minute)
	if _, err := w.driver.GetMachineStatus(t.Context(),
		driver.GetMachineStatusRequest{Target: target}); driver.CodeOf(err) != driver.Uninitialized {
		t.Errorf("status later: %v, want Uninitialized", err)
	}
}

// An answer without tags is one about the VM, because of the token.
func TestVMWhoseTagsAreNotShownYet(t *testing.T) {
	w := newWorld(t, func(s *ec2test.Settings) { s.LateTags = true })
	target := w.target()
	w.mustCreate(t, target)
	w.mustCreate(t, target)
	w.wantLiving(t, 1, "after a create that was repeated")
}

// Other parameters under the token prove that the VM exists, whether or not the cloud shows it.
func TestOtherParametersWhileTheVMIsNotShown(t *testing.T) {
	w := newWorld(t, func(s *ec2test.Settings) { s.VisibleAfter = 30 * time.Second })
	target := w.target()
	w.mustCreate(t, target)
	other := target
	other.ControlCluster = "another"
	if err := w.create(t, other); driver.CodeOf(err) != driver.AlreadyExists {
		t.Errorf("%v, want AlreadyExists", err)
	}
	w.wait(time.Minute)
	w.mustCreate(t, other)
	w.wantLiving(t, 1, "after creates with other parameters")
}

// A VM that has gone is absent at once, and a machine whose VM was never created as well when it is
// old enough.
func TestVMThatIsGone(t *testing.T) {
	w := newWorld(t, nil)
	target := w.target()
	w.mustCreate(t, target)
	w.End(strings.TrimPrefix(target.Machine.Spec.ProviderID, providerIDPrefix+region+"/"), "User initiated")
	if _, err := w.driver.GetMachineStatus(t.Context(),
		driver.GetMachineStatusRequest{Target: target}); driver.CodeOf(err) != driver.NotFound {
		t.Errorf("status: %v, want NotFound", err)
	}
	if resp, err := w.driver.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: target}); err != nil || !resp.Gone || !resp.Owned {
		t.Errorf("delete: gone=%t, owned=%t, %v; want both", resp.Gone, resp.Owned, err)
	}
	if err := w.create(t, target); driver.CodeOf(err) != driver.Aborted {
		t.Errorf("create: %v, want Aborted", err)
	}
	w.wantLiving(t, 0, "after the end of the VM")
	w.wait(2 * time.Hour) // the cloud does not show it any more, and keeps the token
	if err := w.create(t, target); driver.CodeOf(err) != driver.Aborted {
		t.Errorf("create after two hours: %v, want Aborted", err)
	}
	if resp, err := w.driver.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: target}); err != nil || !resp.Gone {
		t.Errorf("delete after two hours: gone=%t, %v", resp.Gone, err)
	}
}

// After a day the cloud has forgotten the token, and the tag identifies the VM.
func TestCreateIsRepeatedAfterTheTokenIsForgotten(t *testing.T) {
	w := newWorld(t, nil)
	target := w.target()
	ctx, cancel := context.WithCancel(t.Context())
	heal := w.Fail(ec2test.Failure{Actions: []string{"RunInstances"}, Hang: true, Hung: cancel})
	_, err := w.driver.CreateMachine(ctx, driver.CreateMachineRequest{Target: target, UserData: []byte("data")})
	cancel()
	heal()
	if driver.CodeOf(err) != driver.Canceled {
		t.Fatalf("%v, want Canceled", err)
	}
	w.wantLiving(t, 1, "after the answer was lost")
	w.wait(ec2test.TokenLife + time.Hour)
	w.mustCreate(t, target)
	w.wantLiving(t, 1, "after the create was repeated a day later")
	if slices.Contains(w.Requests()[len(w.Requests())-1:], "RunInstances") {
		t.Error("the repeated create has requested a VM")
	}
	w.End(w.Living()[0].ID, "Server.SpotInstanceTermination: gone")
	if err := w.create(t, target); driver.CodeOf(err) != driver.Aborted || !strings.Contains(err.Error(), "SpotInstanceTermination") {
		t.Errorf("%v, want Aborted with the reason", err)
	}
}

// A machine whose create was refused for a day for a lack of capacity gets its VM then.
func TestFirstVMOfAnOldMachine(t *testing.T) {
	w := newWorld(t, nil)
	target := w.target()
	heal := w.Fail(ec2test.Failure{
		Actions: []string{"RunInstances"}, Code: "InsufficientInstanceCapacity", Status: http.StatusInternalServerError,
	})
	if err := w.create(t, target); driver.CodeOf(err) != driver.ResourceExhausted || target.Machine.Status.LastKnownState != "" {
		t.Errorf("%v with note %q, want ResourceExhausted and none", err, target.Machine.Status.LastKnownState)
	}
	heal()
	w.wait(48 * time.Hour)
	w.mustCreate(t, target)
	w.wantLiving(t, 1, "after two days")
}

func TestInitialize(t *testing.T) {
	w := newWorld(t, nil)
	target := w.target()
	target.Class = classOf(string(changed(t, map[string]any{
		"networkInterfaces": []any{nic(nil), nic(object{"ipv6PrefixCount": 2, "deviceIndex": 3, "networkCardIndex": 1})},
	})))
	w.mustCreate(t, target)
	_, err := w.driver.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: target})
	if driver.CodeOf(err) != driver.Uninitialized || !strings.Contains(err.Error(), "lacks 2 IPv6 prefixes") {
		t.Fatalf("status: %v, want Uninitialized", err)
	}
	for range 2 {
		if resp, err := w.driver.InitializeMachine(t.Context(), driver.InitializeMachineRequest{Target: target}); err != nil ||
			resp.ProviderID != target.Machine.Spec.ProviderID {
			t.Fatalf("%+v, %v", resp, err)
		}
	}
	var prefixes []int
	for _, a := range w.Attachments() {
		if strings.HasPrefix(a.ID, nicPrefix) {
			prefixes = append(prefixes, a.Prefixes)
			if a.SourceDestCheck {
				t.Errorf("%s checks source and destination", a.ID)
			}
		}
	}
	if !slices.Equal(prefixes, []int{0, 2}) {
		t.Errorf("%v IPv6 prefixes, want 0 and 2", prefixes)
	}
	if _, err := w.driver.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: target}); err != nil {
		t.Errorf("status: %v", err)
	}
}

func TestInitializeChangesNoOtherVM(t *testing.T) {
	w := newWorld(t, nil)
	victim, forger := w.target(), w.target()
	w.mustCreate(t, victim)
	forger.Machine = forger.Machine.DeepCopy()
	forger.Machine.UID, forger.Machine.Spec.ProviderID = "uid-of-b", victim.Machine.Spec.ProviderID
	if _, err := w.driver.InitializeMachine(t.Context(),
		driver.InitializeMachineRequest{Target: forger}); driver.CodeOf(err) != driver.NotFound {
		t.Errorf("%v, want NotFound", err)
	}
	if !w.Attachments()[0].SourceDestCheck && !w.Attachments()[1].SourceDestCheck {
		t.Error("the VM of another machine was changed")
	}
	victim.Class = classOf(string(changed(t, map[string]any{"srcAndDstChecksEnabled": nil})))
	if _, err := w.driver.InitializeMachine(t.Context(),
		driver.InitializeMachineRequest{Target: victim}); driver.CodeOf(err) != driver.Unimplemented {
		t.Errorf("without anything to set: %v, want Unimplemented", err)
	}
}

// Machine Controller Manager has the region in provider IDs, as the driver, and the cloud
// controller manager the zone.
func TestProviderIDsOfNodes(t *testing.T) {
	w := newWorld(t, nil)
	target := w.target()
	w.mustCreate(t, target)
	own := target.Machine.Spec.ProviderID
	target.Machine.Spec.ProviderID = strings.Replace(own, region, zone, 1)
	target.Class = classOf(string(changed(t, map[string]any{"srcAndDstChecksEnabled": nil})))
	if resp, err := w.driver.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: target}); err != nil ||
		resp.ProviderID != own || resp.State != "running" {
		t.Errorf("%q, %v; want %q", resp.ProviderID, err, own)
	}
	target.Machine.Spec.ProviderID = "aws:///eu-west-1/i-0a" // EC2 rejects an ID of this length
	if resp, err := w.driver.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: target}); err != nil ||
		resp.ProviderID != own {
		t.Errorf("with an ID that is malformed: %q, %v; want %q", resp.ProviderID, err, own)
	}
	for text, want := range map[string]string{
		"aws:///eu-west-1/i-0a": "i-0a", "aws:///eu-west-1c/i-0a": "i-0a", "aws:////i-0a": "i-0a",
		"": "", "aws:///": "", "aws:///eu-west-1": "", "aws:///eu-west-1/": "", "aws:///eu-west-1/i-": "", "aws:///eu-west-1/vol-1": "",
		"aws:///eu-west-1/i-0A": "", "aws:///eu-west-1/i-0a/x": "", "aws:///eu-west-1/i-0a\n": "", "gce:///p/z/i-0a": "",
		"aws:///r/i-" + strings.Repeat("0", 33): "",
	} {
		if got, ok := parseProviderID(text); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %t; want %q", text, got, ok, want)
		}
	}
}

// A volume that the provider spec keeps outlives its VM and its machine.
func TestVolumeThatIsKept(t *testing.T) {
	w := newWorld(t, nil)
	target := w.target()
	target.Class = classOf(string(changed(t, map[string]any{"blockDevices": []any{device("/root", object{"deleteOnTermination": false})}})))
	w.mustCreate(t, target)
	w.deleteAll(t, target)
	if left := w.Attachments(); len(left) != 1 || left[0].Instance != "" {
		t.Errorf("after the delete: %+v, want the volume", left)
	}
	page, err := w.driver.ListResources(t.Context(), driver.ListResourcesRequest{
		ScopeRequest: driver.ScopeRequest{Class: target.Class, Secret: target.Secret, ControlCluster: "control"}, Continue: "Disk:",
	})
	if err != nil || len(page.Items) > 0 {
		t.Errorf("a sweep lists %+v, %v; want nothing", page.Items, err)
	}
}

// deleteAll deletes a machine's VM as the fleet does: by calling again.
func (w *world) deleteAll(t *testing.T, target driver.Target) {
	t.Helper()
	for range 100 {
		resp, err := w.driver.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: target})
		if err == nil && resp.Gone {
			return
		}
		w.wait(5 * time.Second)
	}
	t.Fatal("the VM is not gone")
}

// A cloud that throttles gets few requests that it refuses, because the driver repeats none itself.
func TestThrottledRequestsAreNotRepeated(t *testing.T) {
	w := newWorld(t, func(s *ec2test.Settings) { s.Rate, s.Burst = 1, 2 })
	target := w.target()
	w.mustCreate(t, target) // the image, and the VM
	if err := w.create(t, target); driver.CodeOf(err) != driver.Unavailable || !strings.Contains(err.Error(), "RequestLimitExceeded") {
		t.Errorf("%v, want Unavailable", err)
	}
	if got := len(w.Requests()); got != 3 {
		t.Errorf("%d requests, want 3: %v", got, w.Requests())
	}
	w.wait(time.Second)
	w.mustCreate(t, target)
}

func TestUserDataOfMoreThanTheCloudAccepts(t *testing.T) {
	w := newWorld(t, nil)
	for size, want := range map[int]driver.Code{maxUserData: driver.OK, maxUserData + 1: driver.InvalidArgument} {
		target := w.target()
		target.Machine.UID = "uid-" + target.Machine.UID
		_, err := w.driver.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: target, UserData: make([]byte, size)})
		if driver.CodeOf(err) != want {
			t.Errorf("%d bytes: %v, want %v", size, err, want)
		}
	}
}

func TestWorkloadIdentity(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "token")
	write := func(path, content string) string {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write(outside, token)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file, role string
		want       driver.Code
		requests   []string
	}{
		"valid": {write(filepath.Join(dir, "token"), token), role, driver.NotFound, []string{
			"AssumeRoleWithWebIdentity", "DescribeInstances", "DescribeInstances",
		}},
		"another token": {write(filepath.Join(dir, "other"), "other"), role, driver.Unauthenticated, []string{
			"AssumeRoleWithWebIdentity", "AssumeRoleWithWebIdentity",
		}},
		"another role": {
			filepath.Join(dir, "token"), role + "-2", driver.PermissionDenied, []string{"AssumeRoleWithWebIdentity", "AssumeRoleWithWebIdentity"},
		},
		"no file":                 {filepath.Join(dir, "none"), role, driver.Unauthenticated, nil},
		"an empty file":           {write(filepath.Join(dir, "empty"), ""), role, driver.Unauthenticated, nil},
		"a large file":            {write(filepath.Join(dir, "large"), strings.Repeat("x", maxTokenFile+1)), role, driver.Unauthenticated, nil},
		"a link outside":          {link, role, driver.Unauthenticated, nil},
		"a file outside":          {outside, role, driver.InvalidArgument, nil},
		"a path outside":          {dir + "/../token", role, driver.InvalidArgument, nil},
		"a path that is relative": {"token", role, driver.InvalidArgument, nil},
	} {
		w := newWorld(t, nil)
		d := w.site.driver(t, func(cfg *Config) { cfg.TokenDirs, cfg.Clock = []string{dir}, w.clock })
		target := w.target()
		target.Secret = map[string][]byte{SecretTokenFile: []byte(c.file), SecretRoleARN: []byte(c.role)}
		for range 2 {
			_, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: target})
			if driver.CodeOf(err) != c.want || strings.Contains(err.Error(), token) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
		if got := w.Requests(); !slices.Equal(got, c.requests) {
			t.Errorf("%s: requests %v, want %v", name, got, c.requests)
		}
	}
}

// A Secret with new content is used at once, and one whose signature is wrong is refused.
func TestCredentialsAreThoseOfTheSecret(t *testing.T) {
	w := newWorld(t, nil)
	target := w.target()
	status := func() driver.Code {
		t.Helper()
		_, err := w.driver.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: target})
		return driver.CodeOf(err)
	}
	if got := status(); got != driver.NotFound {
		t.Errorf("with the access key: %v, want NotFound", got)
	}
	target.Secret[SecretSecretAccessKeyAlternate] = []byte("another")
	if got := status(); got != driver.Unauthenticated {
		t.Errorf("with another secret access key: %v, want Unauthenticated", got)
	}
	target.Secret = accessKey()
	target.Secret[SecretEndpoint] = []byte("http://169.254.169.254")
	if got := status(); got != driver.InvalidArgument {
		t.Errorf("with an endpoint that is not allowed: %v, want InvalidArgument", got)
	}
}

// No error has a secret, regardless of how the cloud fails.
func TestErrorsHaveNoSecrets(t *testing.T) {
	w := newWorld(t, nil)
	way := &brokenWay{}
	t.Cleanup(way.transport.CloseIdleConnections)
	d := w.site.driver(t, func(cfg *Config) { cfg.Transport, cfg.Clock = way, w.clock })
	target := w.target()
	scope := driver.ScopeRequest{Class: target.Class, Secret: target.Secret, ControlCluster: "control"}
	for _, how := range []drivertest.Failure{
		drivertest.Unreachable, drivertest.Nonsense, drivertest.ServerError, drivertest.Throttled, drivertest.BadCredentials,
		drivertest.Forbidden, drivertest.QuotaExceeded, drivertest.PartialCreate, drivertest.Elsewhere, drivertest.WrongTypes, drivertest.BadID,
	} {
		heal := w.fail(way, how)
		_, create := d.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: target, UserData: []byte("the-user-data-with-a-token")})
		_, status := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: target})
		_, list := d.ListMachines(t.Context(), driver.ListMachinesRequest{Class: target.Class, Secret: target.Secret})
		_, sweep := d.ListResources(t.Context(), driver.ListResourcesRequest{ScopeRequest: scope})
		heal()
		for _, err := range []error{create, status, list, sweep} {
			for _, hidden := range []string{secret, "AKIAIOSFODNN7EXAMPLE", "the-user-data", "Signature"} {
				if text := fmt.Sprint(err); strings.Contains(text, hidden) {
					t.Errorf("%s: the error has %q: %s", how, hidden, text)
				}
			}
		}
		if create == nil {
			t.Errorf("%s: the create succeeded", how)
		}
	}
}

func TestServices(t *testing.T) {
	w := newWorld(t, nil)
	var seen []string
	d := w.site.driver(t, func(cfg *Config) {
		cfg.Clock = w.clock
		cfg.Wrap = func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				seen = append(seen, Service(r))
				return next.RoundTrip(r)
			})
		}
	})
	w.driver = d
	target := w.target()
	w.mustCreate(t, target)
	if want := []string{"describe_images", "run_instances"}; !slices.Equal(seen, want) {
		t.Errorf("services %v, want %v", seen, want)
	}
	other, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if got := Service(other); got != "other" {
		t.Errorf("another request is of service %q", got)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
