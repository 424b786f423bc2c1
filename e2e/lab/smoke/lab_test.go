//go:build e2e

package smoke

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/labtest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
)

const fleetNamespace = "machine-controller-fleet"

// binary is the path of a binary: of BIN, or else of bin in the repository.
func binary(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(bin(), name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("run make build first: %v", err)
	}
	return path
}

func bin() string { return cmp.Or(os.Getenv("BIN"), filepath.Join("..", "..", "..", "bin")) }

// lab is the folder of a lab. When the test ends, so does the lab, and nothing may be left of it.
type lab string

func newLab(t *testing.T) lab {
	t.Helper()
	// A long path, as on some machines. A unix socket in it could not be used.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long-", 20), "lab")
	l := lab(dir)
	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := exec.Command("tail", "-n", "20", "-v", filepath.Join(dir, "logs", "launcher.log"), filepath.Join(dir, "logs", "fleet-0.log")).
				CombinedOutput()
			t.Logf("%s", logs)
		}
		if output, err := l.command("down").CombinedOutput(); err != nil {
			t.Errorf("lab down: %v: %s", err, output)
		}
		l.expectGone(t)
	})
	return l
}

func (l lab) command(command string, args ...string) *exec.Cmd {
	path, _ := filepath.Abs(filepath.Join(bin(), "lab"))
	if command == "up" {
		args = append([]string{"--fleet-flags=--slots=8"}, args...) // each slot takes a fleet four requests
	}
	return exec.Command(path, append([]string{command, "--dir=" + string(l)}, args...)...)
}

// run runs a lab command, which has to succeed, and returns its output.
func (l lab) run(t *testing.T, command string, args ...string) string {
	t.Helper()
	output, err := l.command(command, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("lab %s: %v\n%s", command, err, output)
	}
	return string(output)
}

func (l lab) path(name string) string { return filepath.Join(string(l), name) }

func (l lab) read(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(l.path(name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func (l lab) pids(t *testing.T) map[string]int {
	t.Helper()
	var pids map[string]int
	l.read(t, "pids.json", &pids)
	return pids
}

func (l lab) id(t *testing.T) string {
	t.Helper()
	var state struct{ ID string }
	l.read(t, "state.json", &state)
	return state.ID
}

// processes returns all that have the lab's environment variable.
func (l lab) processes(t *testing.T) []supervise.ID {
	t.Helper()
	ids, err := supervise.WithEnv("LAB_ID", l.id(t))
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// expectGone fails if a process has the lab's environment variable, or one of its files open or in
// its command line.
func (l lab) expectGone(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(l.path("state.json")); err != nil {
		return // It was never started.
	}
	if left := l.processes(t); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	commandLines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range commandLines {
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(l)) {
			t.Errorf("a process is left: %s", bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
		}
	}
	if pids := l.pids(t); len(pids) > 0 {
		t.Errorf("pids.json says %v", pids)
	}
}

func (l lab) config(t *testing.T, kubeconfig string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", l.path(kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

func (l lab) client(t *testing.T, kubeconfig string) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(l.config(t, kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestOneCluster(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	started := time.Now()
	said := l.run(t, "up")
	t.Logf("up after %v:\n%s", time.Since(started), said)
	pids := l.pids(t)
	expected := []string{
		"launcher", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "cloudsim",
		"fleet-0", "fleet-1", "fleet-2", "driver-simulated-fleet-0", "driver-simulated-fleet-1", "driver-simulated-fleet-2",
	}
	for _, name := range expected {
		if _, err := supervise.Identify(pids[name]); err != nil {
			t.Errorf("process of %s: %v", name, err)
		}
	}
	if len(pids) != len(expected) {
		t.Errorf("processes: %v", pids)
	}
	if said := l.run(t, "up"); !strings.Contains(said, "up already") {
		t.Errorf("up, a second time: %s", said)
	}
	if output, err := l.command("up", "--clusters=2").CombinedOutput(); err == nil || !strings.Contains(string(output), "other options") {
		t.Errorf("up, with other options: %v: %s", err, output)
	}
	t.Run("rights", func(t *testing.T) { testRights(t, l) })
	t.Run("audit log", func(t *testing.T) { testAuditLog(t, l) })
	t.Run("actions", func(t *testing.T) { testActions(t, l) })
	t.Run("links", func(t *testing.T) { testLinks(t, l) })
	t.Run("snapshot", func(t *testing.T) { testSnapshot(t, l) })
	t.Run("scale", func(t *testing.T) { testScale(t, l) })
	t.Run("machine", func(t *testing.T) { testMachine(t, l) })
}

// Two clusters, next to another lab, which is not changed.
func TestTwoClusters(t *testing.T) {
	t.Parallel()
	one, two := newLab(t), newLab(t)
	one.run(t, "up")
	before := one.pids(t)
	two.run(t, "up", "--clusters=2")
	pids := two.pids(t)
	for _, name := range []string{"target-kube-apiserver", "target-kube-controller-manager", "target-kube-scheduler"} {
		if pids[name] == 0 {
			t.Errorf("%s does not run: %v", name, pids)
		}
	}
	var endpoints map[string]string
	two.read(t, "endpoints.json", &endpoints)
	control, target := two.config(t, "admin.kubeconfig"), two.config(t, "target.kubeconfig")
	if control.Host != endpoints["kube-apiserver"] || target.Host != endpoints["target-kube-apiserver"] || control.Host == target.Host {
		t.Errorf("servers %s and %s, endpoints %v", control.Host, target.Host, endpoints)
	}
	if _, err := os.Stat(two.path("target-audit.log")); err != nil {
		t.Error(err)
	}
	two.run(t, "down")
	two.expectGone(t)
	if after := one.pids(t); !maps.Equal(before, after) {
		t.Errorf("the processes of the other lab: %v, and %v before", after, before)
	}
	labtest.Until(t, "the other lab answers", func(context.Context) error { // a replica may be suspended while another lab starts
		// All but the launcher answer.
		if output := one.run(t, "status"); strings.Count(output, "running") != len(before) || strings.Count(output, "  ok") < len(before)-1 {
			return errors.New(output)
		}
		return nil
	})
}

// The launcher is killed, with a machine on: down ends everything, and up works again.
func TestDownAfterACrashOfTheLauncher(t *testing.T) {
	t.Parallel()
	needMachines(t)
	l := newLab(t)
	l.run(t, "up")
	startMachine(t, l, l.client(t, "target.kubeconfig"), "machine-0")
	insideMachine(t, l)
	launcher, err := supervise.Identify(l.pids(t)["launcher"])
	if err != nil {
		t.Fatal(err)
	}
	if err := launcher.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	labtest.Until(t, "the launcher ends", func(context.Context) error {
		if !launcher.State().Gone() {
			return os.ErrExist
		}
		return nil
	})
	if output, err := l.command("up").CombinedOutput(); err == nil || !strings.Contains(string(output), "lab down") {
		t.Errorf("up without down: %v: %s", err, output)
	}
	if output, err := l.command("status").CombinedOutput(); err == nil || !strings.Contains(string(output), "launcher of the lab") {
		t.Errorf("status: %v: %s", err, output)
	}
	l.run(t, "down")
	l.expectGone(t)
	l.run(t, "up")
}

// Up that is interrupted, or killed, leaves nothing, at any point of the boot.
func TestUpIsCancelled(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"interrupted": syscall.SIGINT, "killed": syscall.SIGKILL} {
		for _, after := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 1500 * time.Millisecond} {
			t.Run(name+" after "+after.String(), func(t *testing.T) {
				l := newLab(t)
				up := l.command("up")
				if err := up.Start(); err != nil {
					t.Fatal(err)
				}
				// Before the state is written there is no ID to find processes by, and none has been started.
				labtest.Until(t, "the lab has an ID", func(context.Context) error {
					_, err := os.Stat(l.path("state.json"))
					return err
				})
				timer := time.NewTimer(after)
				<-timer.C
				if err := up.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				_ = up.Wait()
				labtest.Until(t, "all processes end", func(context.Context) error {
					if left := l.processes(t); len(left) > 0 {
						return os.ErrExist
					}
					return nil
				})
			})
		}
	}
}

// A component that cannot start is named, with the end of its log, and nothing is left.
func TestUpFails(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	output, err := l.command("up", "--cloudsim-flags=--no-such-flag").CombinedOutput()
	if err == nil || !strings.Contains(string(output), "cloudsim: process ended before it was ready: exit status") ||
		!strings.Contains(string(output), "no-such-flag") {
		t.Errorf("up: %v: %s", err, output)
	}
	l.expectGone(t)
	if output, err := l.command("up", "--replicas=-1").CombinedOutput(); err == nil ||
		!strings.Contains(string(output), "--replicas: expected") {
		t.Errorf("up with less than no replicas: %v: %s", err, output)
	}
}

func testActions(t *testing.T, l lab) {
	before := l.pids(t)["fleet-0"]
	if said := l.run(t, "kill", "fleet-0"); !strings.Contains(said, "signal: killed") {
		t.Errorf("kill: %s", said)
	}
	if pid, ok := l.pids(t)["fleet-0"]; ok {
		t.Errorf("a killed process has number %d", pid)
	}
	if output, err := l.command("up").CombinedOutput(); err == nil || !strings.Contains(string(output), "not all of it: fleet-0") {
		t.Errorf("up without fleet-0: %v: %s", err, output)
	}
	l.run(t, "start", "fleet-0")
	l.run(t, "pause", "fleet-0")
	labtest.Until(t, "fleet-0 is paused", func(context.Context) error {
		if status := l.run(t, "status"); !slices.Contains(strings.Fields(status), "paused") {
			return os.ErrInvalid
		}
		return nil
	})
	l.run(t, "resume", "fleet-0")
	l.run(t, "restart", "fleet-0")
	after := l.pids(t)["fleet-0"]
	if after == 0 || after == before {
		t.Errorf("process %s before and %s after", strconv.Itoa(before), strconv.Itoa(after))
	}
	l.run(t, "crash", "fleet-0")
	l.answers(t, "fleet-0")
	if again := l.pids(t)["fleet-0"]; again == after {
		t.Errorf("process %d before the crash and after it", again)
	}
}

// answers waits until a process does.
func (l lab) answers(t *testing.T, name string) {
	t.Helper()
	labtest.Until(t, name+" answers", func(context.Context) error {
		status := l.run(t, "status")
		for line := range strings.Lines(status) {
			if strings.HasPrefix(line, name+" ") && strings.HasSuffix(strings.TrimSpace(line), " ok") {
				return nil
			}
		}
		return errors.New(status)
	})
}
