package realkubelet

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/labtest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script takes the place of a VM: it records its arguments, has a child in another session, and
// ends on SIGTERM.
const script = `#!/bin/sh
trap 'echo shut down >> ended; exit 0' TERM
printf '%s\n' "$@" >> args
setsid sleep 600 & child=$!
while [ ! -e crash ]; do sleep 0.05; done
rm crash; kill -9 $child # a shell loses a SIGTERM while it starts a child
`

// site is a running Host.
type site struct {
	t      *testing.T
	host   *Host
	client *fake.Clientset
	cloud  *cloud
	dir    string
	stop   func()
}

type cloud struct {
	mu      sync.Mutex
	joined  []string
	console []string
	died    []string
	off     []string
}

func (c *cloud) Joined(id, _ string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.joined = append(c.joined, id)
}

func (c *cloud) Console(_, line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.console = append(c.console, line)
}

func (c *cloud) Died(id, _ string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.died = append(c.died, id)
}

func (c *cloud) IsOff(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = append(c.off, id)
}

// isOff reports whether the Host has reported that a VM is off.
func (c *cloud) isOff(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.off, id)
}

func (c *cloud) Settings() cloudapi.Settings { return cloudapi.Settings{} }

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), client: fake.NewClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication"},
		Data:       map[string]string{"client-ca-file": "CLIENT CA"},
	})}
	if err := os.WriteFile(filepath.Join(s.dir, "vm.sh"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s.cloud = &cloud{}
	s.start()
	t.Cleanup(func() {
		s.stop()
		if err := remove(context.WithoutCancel(t.Context()), s.host.cfg.Clock, s.vmDir(), 0); err != nil {
			t.Error(err)
		}
	})
	return s
}

// start creates a Host and runs it.
func (s *site) start(vms ...guest.VM) {
	s.t.Helper()
	var err error
	s.host, err = New(Config{
		Command: []string{"/bin/sh", filepath.Join(s.dir, "vm.sh")}, Dir: filepath.Join(s.dir, "vms"),
		Volumes: filepath.Join(s.dir, "volumes"), Client: s.client,
		Cluster: &rest.Config{Host: "https://127.0.0.1:6443", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("SERVER CA")}},
		Log:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, vm := range vms {
		s.host.PowerOn(vm)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.host.Run(ctx, s.cloud) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("Run: %v", err)
		}
	})
}

func aVM() guest.VM {
	return guest.VM{
		ID: "i-1", Name: "a", ProviderID: "simulated:///r/z/i-1", Region: "r", Zone: "z", InstanceType: "standard-4",
		IP: "127.0.0.1", CPU: 4, MemoryMiB: 16384, BootstrapToken: "abcdef.0123456789abcdef",
		UserData: []byte("USER DATA"),
	}
}

func (s *site) vmDir() string { return filepath.Join(s.dir, "vms", "i-1") }

// eventually waits until a condition holds.
func (s *site) eventually(what string, holds func() bool) {
	s.t.Helper()
	labtest.Until(s.t, what, func(context.Context) error {
		if holds() {
			return nil
		}
		s.cloud.mu.Lock()
		defer s.cloud.mu.Unlock()
		return fmt.Errorf("not yet; console: %q", s.cloud.console)
	})
}

// running returns the VM's processes.
func (s *site) running() []supervise.ID {
	s.t.Helper()
	all, err := supervise.WithEnv(dirVariable, s.vmDir())
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

func (s *site) read(name string) string {
	raw, _ := os.ReadFile(filepath.Join(s.vmDir(), name))
	return string(raw)
}

// runs waits until the VM runs, and returns its arguments.
func (s *site) runs() []string {
	s.t.Helper()
	s.eventually("the VM runs", func() bool { return strings.Contains(s.read("args"), "--forced-env") && len(s.running()) >= 2 })
	return strings.Split(strings.TrimSpace(s.read("args")), "\n")
}

func TestPowerOnAndOff(t *testing.T) {
	s := newSite(t)
	s.host.PowerOn(aVM())
	s.host.PowerOn(aVM())
	args := s.runs()
	for flag, want := range map[string]string{
		"--dir": s.vmDir(), "--name": "a", "--provider-id": "simulated:///r/z/i-1", "--node-ip": "127.0.0.1", "--cpu": "4",
		"--memory-mib": "16384", "--bootstrap-kubeconfig": filepath.Join(s.vmDir(), bootstrapFile),
		"--user-data":  filepath.Join(s.vmDir(), userDataFile),
		"--forced-env": "KUBERNETES_SERVICE_HOST=127.0.0.1,KUBERNETES_SERVICE_PORT=6443",
	} {
		if at := slices.Index(args, flag); at < 0 || args[at+1] != want {
			t.Errorf("arguments %q; want %s %s", args, flag, want)
		}
	}
	if got := s.read(clientCAFile); got != "CLIENT CA" {
		t.Errorf("authority for clients: %q", got)
	}
	if got := s.read(userDataFile); got != "USER DATA" {
		t.Errorf("user data: %q", got)
	}
	for _, want := range []string{"token: abcdef.0123456789abcdef", "server: https://127.0.0.1:6443"} {
		if got := s.read(bootstrapFile); !strings.Contains(got, want) {
			t.Errorf("bootstrap kubeconfig: %s\nwant in it: %s", got, want)
		}
	}
	if off := s.host.PowerOff("i-1", 0); off || s.cloud.isOff("i-1") {
		t.Error("the VM is said to be off while its processes live")
	}
	s.eventually("the VM is off at the cloud", func() bool { return s.cloud.isOff("i-1") })
	if _, err := os.Stat(s.vmDir()); !os.IsNotExist(err) || len(s.running()) > 0 {
		t.Errorf("folder %v, processes %v; want nothing left", err, s.running())
	}
	if off := s.host.PowerOff("i-1", 0); !off {
		t.Error("a VM of which nothing is left is not off")
	}
}

// The VM sees the volumes that are attached to it, also changes that were made while the cloud was
// down.
func TestVolumes(t *testing.T) {
	s := newSite(t)
	s.host.PowerOn(aVM())
	s.host.SetVolumes("i-1", []string{"vol-1"})
	sees := func(want ...string) {
		t.Helper()
		s.eventually(fmt.Sprintf("the VM sees %v", want), func() bool {
			files, err := os.ReadDir(filepath.Join(s.vmDir(), attachedFolder))
			got := []string{}
			for _, f := range files {
				got = append(got, f.Name())
			}
			return err == nil && slices.Equal(got, want)
		})
	}
	sees("vol-1")
	args := s.runs()
	for flag, want := range map[string]string{
		"--volumes": filepath.Join(s.dir, "volumes"), "--attached": filepath.Join(s.vmDir(), attachedFolder),
	} {
		if at := slices.Index(args, flag); at < 0 || args[at+1] != want {
			t.Errorf("arguments %q; want %s %s", args, flag, want)
		}
	}
	s.host.SetVolumes("i-1", []string{"vol-1", "vol-2"})
	sees("vol-1", "vol-2")
	s.host.SetVolumes("i-1", []string{"vol-2"})
	sees("vol-2")

	s.stop()
	resumed := aVM()
	resumed.Resumed = true
	s.start(resumed)
	s.host.SetVolumes("i-1", []string{"vol-3"})
	sees("vol-3")
	s.host.SetVolumes("i-1", nil)
	sees()
}

// A graceful shutdown that takes too long is ended by a second call.
func TestSecondPowerOffKills(t *testing.T) {
	s := newSite(t)
	ignoring := strings.Replace(script, "trap 'echo shut down >> ended; exit 0' TERM", "trap '' TERM", 1)
	if err := os.WriteFile(filepath.Join(s.dir, "vm.sh"), []byte(ignoring), 0o700); err != nil {
		t.Fatal(err)
	}
	s.host.PowerOn(aVM())
	s.eventually("the VM runs", func() bool { return s.read("args") != "" })
	s.host.PowerOff("i-1", time.Hour)
	time.Sleep(2 * pollInterval)
	if len(s.running()) == 0 {
		t.Fatal("the VM has ended already")
	}
	s.host.PowerOff("i-1", 0)
	s.eventually("the VM has ended", func() bool { return len(s.running()) == 0 })
}

func TestVMOutlivesTheHost(t *testing.T) {
	s := newSite(t)
	s.host.PowerOn(aVM())
	s.eventually("the VM runs", func() bool { return len(s.running()) >= 2 })
	before := s.running()
	s.stop()
	resumed := aVM()
	resumed.Resumed = true
	s.start(resumed)
	s.eventually("the VM was found", func() bool {
		s.host.mu.Lock()
		defer s.host.mu.Unlock()
		return s.host.byID["i-1"] != nil
	})
	time.Sleep(2 * pollInterval)
	// The oldest is the VM itself, the script; its children start and end.
	if after := s.running(); !slices.Contains(after, before[0]) || len(s.cloud.died) > 0 {
		t.Errorf("processes before %v, after %v; died: %v", before, after, s.cloud.died)
	}
	if n := strings.Count(s.read("args"), "--dir"); n != 1 {
		t.Errorf("the VM was started %d times", n)
	}
	s.stop()
	for _, id := range before {
		_ = id.Signal(9)
	}
	s.eventually("the VM's processes have ended", func() bool { return len(s.running()) == 0 })
	s.start(resumed)
	s.eventually("the VM is known to have died", func() bool {
		s.cloud.mu.Lock()
		defer s.cloud.mu.Unlock()
		return slices.Contains(s.cloud.died, "i-1")
	})
}

// The cloud was killed after it recorded that the VM has ended, and before its processes had. It
// switches the VM off once more.
func TestLeftoversAreEnded(t *testing.T) {
	s := newSite(t)
	s.host.PowerOn(aVM())
	s.eventually("the VM runs", func() bool { return len(s.running()) >= 2 })
	s.stop()
	s.start()
	if off := s.host.PowerOff("i-1", 0); off {
		s.eventually("it was swept already", func() bool { return len(s.running()) == 0 })
		return
	}
	s.eventually("the VM is off at the cloud", func() bool { return s.cloud.isOff("i-1") })
	if len(s.running()) > 0 {
		t.Errorf("processes %v; want none", s.running())
	}
}

// As before, for a VM that the cloud does not know any more.
func TestLeftoversAreSwept(t *testing.T) {
	s := newSite(t)
	s.host.PowerOn(aVM())
	s.eventually("the VM runs", func() bool { return len(s.running()) >= 2 })
	s.stop()
	s.start()
	s.eventually("nothing is left of the VM", func() bool {
		_, err := os.Stat(s.vmDir())
		return os.IsNotExist(err) && len(s.running()) == 0
	})
}

func TestCrash(t *testing.T) {
	s := newSite(t)
	s.host.PowerOn(aVM())
	s.eventually("the VM runs", func() bool { return s.read("args") != "" })
	if err := os.WriteFile(filepath.Join(s.vmDir(), "crash"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.eventually("the VM is known to have died", func() bool {
		s.cloud.mu.Lock()
		defer s.cloud.mu.Unlock()
		return len(s.cloud.died) == 1
	})
}

// A VM that requests a reboot is switched on again, also when the cloud was restarted meanwhile.
func TestReboot(t *testing.T) {
	s := newSite(t)
	s.host.PowerOn(aVM())
	s.runs()
	reboot := func() {
		t.Helper()
		if err := os.Remove(filepath.Join(s.vmDir(), "args")); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{rebootFile, "crash"} {
			if err := os.WriteFile(filepath.Join(s.vmDir(), name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := s.running()
	reboot()
	s.eventually("the first processes have ended", func() bool {
		return !slices.ContainsFunc(before, func(id supervise.ID) bool { return !id.State().Gone() })
	})
	s.runs()
	s.stop()
	reboot()
	s.eventually("the VM has ended without the cloud", func() bool { return len(s.running()) == 0 })
	vm := aVM()
	vm.Resumed = true
	s.start(vm)
	s.runs()
	s.cloud.mu.Lock()
	defer s.cloud.mu.Unlock()
	if len(s.cloud.died) > 0 {
		t.Error("a VM that reboots is reported as dead")
	}
}

func TestFreeze(t *testing.T) {
	s := newSite(t)
	s.host.PowerOn(aVM())
	s.eventually("the VM runs", func() bool { return s.read("args") != "" })
	for health, stopped := range map[guest.Health]bool{guest.Frozen: true, guest.Healthy: false, guest.NotReady: true} {
		s.host.SetHealth("i-1", health)
		s.eventually("all its processes are stopped, or none", func() bool {
			return !slices.ContainsFunc(s.running(), func(id supervise.ID) bool { return id.State().Stopped() != stopped })
		})
	}
	s.host.PowerOff("i-1", 0)
	s.eventually("the VM has ended", func() bool { return len(s.running()) == 0 })
}

// The host does the work of a cloud controller manager for a new Node.
func TestNodeIsInitialized(t *testing.T) {
	s := newSite(t)
	s.host.PowerOn(aVM())
	s.eventually("the VM runs", func() bool { return s.read("args") != "" })
	nodes := s.client.CoreV1().Nodes()
	if _, err := nodes.Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: corev1.NodeSpec{ProviderID: "simulated:///r/z/i-1", Taints: []corev1.Taint{
			{Key: taintUninitialized, Effect: corev1.TaintEffectNoSchedule}, {Key: "mine", Effect: corev1.TaintEffectNoSchedule},
		}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "a"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("it has joined", func() bool {
		s.cloud.mu.Lock()
		defer s.cloud.mu.Unlock()
		return len(s.cloud.joined) == 1
	})
	node, err := nodes.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Key != "mine" || node.Labels[corev1.LabelTopologyZone] != "z" ||
		node.Labels[corev1.LabelInstanceTypeStable] != "standard-4" {
		t.Errorf("taints %v, labels %v", node.Spec.Taints, node.Labels)
	}
	if !slices.Contains(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}) {
		t.Errorf("addresses %v", node.Status.Addresses)
	}
}

func TestNothingToStart(t *testing.T) {
	s := newSite(t)
	vm := aVM()
	vm.BootstrapToken = ""
	s.host.PowerOn(vm)
	s.eventually("it says why", func() bool {
		s.cloud.mu.Lock()
		defer s.cloud.mu.Unlock()
		return len(s.cloud.console) == 1 && strings.Contains(s.cloud.console[0], "no bootstrap token")
	})
	if len(s.running()) > 0 {
		t.Error("it was started")
	}
}
