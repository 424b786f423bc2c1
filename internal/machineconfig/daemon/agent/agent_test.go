package agent

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/desired"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/disk"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/disk/disktest"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
)

func TestMain(m *testing.M) { bubbles.Main(m) }

// machine is a root folder with what runs on it.
type machine struct {
	*testing.T

	dir      string
	boot     string
	sick     atomic.Bool // the kubelet does not answer
	commands []string
	fails    string // the first words of a command that fails
	cfg      Config
}

var _ Runner = (*machine)(nil)

// Run is Runner's.
func (m *machine) Run(_ context.Context, c Command) error {
	line := strings.Join(c.Args, " ")
	if len(c.Stdin) > 0 {
		line += " < " + string(c.Stdin)
	}
	m.commands = append(m.commands, line)
	if m.fails != "" && strings.HasPrefix(line, m.fails) {
		return errors.New(m.fails + " has failed")
	}
	return nil
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{T: t, dir: t.TempDir(), boot: "boot-1"}
	root, err := disk.OpenRoot(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	m.cfg = Config{
		FS: disktest.Unsynced{FS: root}, StateDir: "/var/lib/mcd", UID: os.Geteuid(), GID: os.Getegid(), Runner: m, Systemd: true,
		RebootCommand: []string{"reboot"}, BootID: func() (string, error) { return m.boot, nil },
		Unhealthy: m.unhealthy, HealthWithin: time.Minute, DriftInterval: time.Minute, Log: logr.Discard(),
	}
	return m
}

func (m *machine) unhealthy(context.Context) string {
	if m.sick.Load() {
		return "the kubelet does not answer"
	}
	return ""
}

func (m *machine) put(name, content string) {
	m.Helper()
	full := filepath.Join(m.dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		m.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
		m.Fatal(err)
	}
}

// file returns the content of a file; "absent" of one that does not exist.
func (m *machine) file(name string) string {
	m.Helper()
	content, err := os.ReadFile(filepath.Join(m.dir, name))
	if os.IsNotExist(err) {
		return "absent"
	}
	if err != nil {
		m.Fatal(err)
	}
	return string(content)
}

func (m *machine) expectFile(name, want string) {
	m.Helper()
	if got := m.file(name); got != want {
		m.Errorf("%s: got %q, want %q", name, got, want)
	}
}

// ran returns the commands since the last call.
func (m *machine) ran(want ...string) {
	m.Helper()
	if diff := cmp.Diff(want, m.commands); diff != "" {
		m.Errorf("commands (-want +got):\n%s", diff)
	}
	m.commands = nil
}

// once is a run of the daemon with a configuration.
func (m *machine) once(c desired.Config) error {
	m.Helper()
	a, err := New(m.cfg, File{Config: c})
	if err != nil {
		m.Fatal(err)
	}
	_, err = a.Once(m.Context())
	return err
}

// rendered is a configuration with an Ignition config, and the spec's other fields.
func rendered(t *testing.T, name, ignition string, change func(spec *v1alpha1.RenderedMachineConfigSpec)) desired.Config {
	t.Helper()
	c, err := desired.FromObject(object(name, ignition, change))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func object(name, ignition string, change func(spec *v1alpha1.RenderedMachineConfigSpec)) *v1alpha1.RenderedMachineConfig {
	o := &v1alpha1.RenderedMachineConfig{}
	o.Name = name
	o.Spec.Config.Raw = []byte(`{"ignition": {"version": "3.5.0"}` + ignition + `}`)
	if change != nil {
		change(&o.Spec)
	}
	return o
}

// fileA is an Ignition config with one file.
func fileA(content string) string {
	return `, "storage": {"files": [{"path": "/etc/a", "contents": {"source": "data:,` + content + `"}}]}`
}

func actions(rules ...v1alpha1.ActionRule) func(*v1alpha1.RenderedMachineConfigSpec) {
	return func(spec *v1alpha1.RenderedMachineConfigSpec) { spec.Actions = rules }
}

func noAction() v1alpha1.ActionRule {
	return v1alpha1.ActionRule{Path: "/etc", Action: v1alpha1.ActionNone}
}

func TestOnceRebootIsProvenByTheBoot(t *testing.T) {
	m := newMachine(t)
	c := rendered(t, "a", fileA("1"), nil)
	if err := m.once(c); err != nil {
		t.Fatal(err)
	}
	m.ran("reboot")
	m.expectFile("/etc/a", "1")
	if err := m.once(c); err != nil { // killed before the machine went down
		t.Fatal(err)
	}
	m.ran("reboot")
	m.boot = "boot-2"
	if err := m.once(c); err != nil {
		t.Fatal(err)
	}
	m.ran()
	m.expectFile("/var/lib/mcd/journal.json", "absent")
}

func TestOnceWithoutRebootCommandSaysThatARebootIsNeeded(t *testing.T) {
	m := newMachine(t)
	m.cfg.RebootCommand = nil
	if err := m.once(rendered(t, "a", fileA("1"), nil)); !errors.Is(err, ErrRebootNeeded) {
		t.Errorf("got %v", err)
	}
}

func TestOnceRestartsAndReloads(t *testing.T) {
	m := newMachine(t)
	unit := `, "systemd": {"units": [{"name": "a.service", "contents": "[Service]\n"}]}`
	c := rendered(t, "a", unit, actions(v1alpha1.ActionRule{Unit: "a.service", Action: v1alpha1.ActionRestart, Service: "a.service"}))
	if err := m.once(c); err != nil {
		t.Fatal(err)
	}
	m.ran("systemctl daemon-reload", "systemctl restart -- a.service")
	m.cfg.Systemd = false
	if err := m.once(rendered(t, "b", "",
		actions(v1alpha1.ActionRule{Unit: "a.service", Action: v1alpha1.ActionRestart, Service: "a.service"}))); err != nil {
		t.Fatal(err)
	}
	m.ran()
	m.expectFile("/etc/systemd/system/a.service", "absent")
}

func TestOnceFailedRestartIsUndone(t *testing.T) {
	m := newMachine(t)
	m.put("/etc/a", "the machine's")
	m.fails = "systemctl restart"
	c := rendered(t, "a", fileA("1"), actions(v1alpha1.ActionRule{Path: "/etc", Action: v1alpha1.ActionRestart, Service: "a.service"}))
	for range 2 {
		if err := m.once(c); !errors.Is(err, ErrNotApplied) {
			t.Errorf("expected ErrNotApplied, got %v", err)
		}
		m.expectFile("/etc/a", "the machine's")
		m.ran("systemctl restart -- a.service", "systemctl restart -- a.service") // with the new file, and with the old one
	}
	if err := m.once(c); !errors.Is(err, ErrNotApplied) {
		t.Errorf("expected ErrNotApplied, got %v", err)
	}
	m.ran() // two attempts are enough
}

func TestOnceUnhealthyAfterRebootGoesBack(t *testing.T) {
	m := newMachine(t)
	m.cfg.HealthWithin = 0
	m.put("/etc/a", "the machine's")
	c := rendered(t, "a", fileA("1"), nil)
	for _, boot := range []string{"boot-1", "boot-3"} {
		m.boot = boot
		if err := m.once(c); err != nil {
			t.Fatal(err)
		}
		m.ran("reboot")
		m.expectFile("/etc/a", "1")
		m.boot = boot + "-next"
		m.sick.Store(true)
		if err := m.once(c); err != nil {
			t.Fatal(err)
		}
		m.ran("reboot") // out of what was undone
		m.expectFile("/etc/a", "the machine's")
	}
	m.boot = "boot-5"
	if err := m.once(c); !errors.Is(err, ErrNotApplied) || !strings.Contains(err.Error(), "the kubelet does not answer") {
		t.Errorf("got %v", err)
	}
	m.ran()
}

func TestOnceRefusesWhatCannotBeApplied(t *testing.T) {
	m := newMachine(t)
	c := rendered(t, "a", fileA("1"), func(spec *v1alpha1.RenderedMachineConfigSpec) { spec.FIPS = true })
	err := m.once(c)
	if !errors.Is(err, ErrNotApplied) || !strings.Contains(err.Error(), "unreconcilable: fips: ") {
		t.Errorf("got %v", err)
	}
	m.expectFile("/etc/a", "absent")
	m.cfg.Provisioned = true
	if err := m.once(c); err != nil {
		t.Error(err)
	}
	m.expectFile("/etc/a", "1")
}

func TestOnceHooksApplyTheirFields(t *testing.T) {
	m := newMachine(t)
	m.cfg.HookDir, m.cfg.Hooks = "/hooks", []string{"osImageURL"}
	c := rendered(t, "a", "", func(spec *v1alpha1.RenderedMachineConfigSpec) { spec.OSImageURL = "new" })
	if err := m.once(c); err != nil {
		t.Fatal(err)
	}
	m.ran(`/hooks/osImageURL < {"field":"osImageURL","new":"\"new\""}`, "reboot")
	m.boot, m.cfg.HealthWithin = "boot-2", 0
	m.sick.Store(true)
	if err := m.once(c); err != nil {
		t.Fatal(err)
	}
	m.ran(`/hooks/osImageURL < {"field":"osImageURL","old":"\"new\""}`, "reboot")
}

func TestOnceFailedHookIsUndoneWithoutAReboot(t *testing.T) {
	m := newMachine(t)
	m.cfg.HookDir, m.cfg.Hooks, m.fails = "/hooks", []string{"osImageURL"}, "/hooks"
	c := rendered(t, "a", fileA("1"), func(spec *v1alpha1.RenderedMachineConfigSpec) { spec.OSImageURL = "new" })
	if err := m.once(c); !errors.Is(err, ErrNotApplied) {
		t.Errorf("got %v", err)
	}
	if len(m.commands) < 2 || strings.Contains(strings.Join(m.commands, "\n"), "reboot") {
		t.Errorf("commands: %q", m.commands)
	}
	m.expectFile("/etc/a", "absent")
}

func TestOnceDrift(t *testing.T) {
	m := newMachine(t)
	c := rendered(t, "a", fileA("1"), actions(noAction()))
	if err := m.once(c); err != nil {
		t.Fatal(err)
	}
	m.put("/etc/a", "secret")
	err := m.once(c)
	if !errors.Is(err, ErrNotApplied) || !strings.Contains(err.Error(), "/etc/a: expected content of 1 bytes") ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
	m.cfg.RepairsDrift = true
	if err := m.once(c); err != nil {
		t.Error(err)
	}
	m.expectFile("/etc/a", "1")
	m.ran()
}

func TestOnceDisabledUnitStaysDisabledAndIsRestoredAfterwards(t *testing.T) {
	m := newMachine(t)
	m.put("/usr/lib/systemd/system/v.service", "[Install]\nWantedBy=x.target\n")
	m.put("/etc/systemd/system/other.target.wants/keep", "")
	link := filepath.Join(m.dir, "/etc/systemd/system/other.target.wants/v.service")
	if err := os.Symlink("/usr/lib/systemd/system/v.service", link); err != nil {
		t.Fatal(err)
	}
	off := `, "systemd": {"units": [{"name": "v.service", "enabled": false}]}`
	for _, name := range []string{"a", "b"} { // b is planned when the link is gone already
		if err := m.once(rendered(t, name, off, actions(v1alpha1.ActionRule{Path: "/etc", Action: v1alpha1.ActionNone}))); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(link); !os.IsNotExist(err) {
			t.Errorf("%s: the unit is still enabled: %v", name, err)
		}
	}
	if err := m.once(rendered(t, "c", "", actions(noAction()))); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(link); err != nil || target != "/usr/lib/systemd/system/v.service" {
		t.Errorf("expected the machine's link, got %q %v", target, err)
	}
}

func TestOnceFailedWriteLeavesTheMachineAsItWas(t *testing.T) {
	m := newMachine(t)
	m.put("/etc/a", "the machine's")
	faulty := &disktest.Faulty{FS: m.cfg.FS}
	m.cfg.FS = faulty
	failing := 25
	faulty.At = func(call int) disktest.Fault {
		if call == failing {
			return disktest.Fail
		}
		return disktest.NoFault
	}
	c := rendered(t, "a", fileA("1"), actions(noAction()))
	if err := m.once(c); !errors.Is(err, disktest.ErrFault) {
		t.Fatalf("expected the injected fault, got %v", err)
	}
	m.expectFile("/etc/a", "the machine's")
	if err := m.once(c); err != nil {
		t.Error(err)
	}
	m.expectFile("/etc/a", "1")
}

func TestReservedFolders(t *testing.T) {
	m := newMachine(t)
	c := rendered(t, "a", `, "storage": {"files": [{"path": "/var/lib/mcd/manifest.json", "contents": {"source": "data:,"}}]}`, nil)
	if err := m.once(c); !errors.Is(err, ErrNotApplied) {
		t.Errorf("got %v", err)
	}
}

func TestReversedClaims(t *testing.T) {
	got, _ := json.Marshal(reversed([]plan.Claim{{Field: "a", Old: "1", New: "2"}, {Field: "b", New: "3"}}))
	if want := `[{"field":"b","old":"3"},{"field":"a","old":"2","new":"1"}]`; string(got) != want {
		t.Errorf("got %s", got)
	}
}

func TestExecReportsTheEndOfTheOutput(t *testing.T) {
	err := Exec{}.Run(t.Context(), Command{
		Args: []string{"/bin/sh", "-c", "cat; exit 3"}, Stdin: []byte(strings.Repeat("x", 2000) + "the end"),
	})
	if err == nil || !strings.HasSuffix(err.Error(), "the end") || len(err.Error()) > 1100 {
		t.Errorf("got %v", err)
	}
	if err := (Exec{}).Run(t.Context(), Command{Args: []string{"/bin/true"}}); err != nil {
		t.Error(err)
	}
}
