package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/desired"
)

// initial is a run of the daemon with the first configuration of a machine.
func (m *machine) initial(c desired.Config) (current string, err error) {
	m.Helper()
	a, err := New(m.cfg, File{Config: c})
	if err != nil {
		m.Fatal(err)
	}
	report, err := a.Initial(m.Context())
	return report.Current, err
}

func (m *machine) expectInitial(c desired.Config, want string) {
	m.Helper()
	if got, err := m.initial(c); err != nil || got != want {
		m.Errorf("the machine has %q (%v), want %q", got, err, want)
	}
}

// The kubelet has not started at the first boot: its health does not count, and a unit that does
// not run is not started.
func TestInitialRestartsOnlyWhatRuns(t *testing.T) {
	m := newMachine(t)
	m.sick.Store(true)
	unit := `, "systemd": {"units": [{"name": "a.service", "contents": "[Service]\n"}]}`
	c := rendered(t, "a", unit+fileA("1"), actions(
		v1alpha1.ActionRule{Unit: "a.service", Action: v1alpha1.ActionRestart, Service: "a.service"},
		v1alpha1.ActionRule{Path: "/etc/a", Action: v1alpha1.ActionReload, Service: "b.service"},
	))
	m.expectInitial(c, "a")
	m.ran("systemctl daemon-reload", "systemctl try-restart -- a.service", "systemctl try-reload-or-restart -- b.service")
	m.expectInitial(c, "a")
	m.ran()
}

// One reboot, and no loop of them.
func TestInitialRebootsOnce(t *testing.T) {
	m := newMachine(t)
	c := rendered(t, "a", fileA("1"), nil)
	for range 2 { // it may be killed before the machine goes down
		if _, err := m.initial(c); !errors.Is(err, ErrRebooting) {
			t.Fatalf("got %v", err)
		}
		m.ran("reboot")
	}
	for _, boot := range []string{"boot-2", "boot-3"} {
		m.boot = boot
		m.expectInitial(c, "a")
		m.ran()
	}
}

// What a machine has been brought to since, or is being brought to, is not undone at a later boot.
func TestInitialLeavesALaterConfiguration(t *testing.T) {
	m := newMachine(t)
	first := rendered(t, "a", fileA("1"), actions(noAction()))
	m.expectInitial(first, "a")
	later := rendered(t, "b", fileA("2"), nil)
	if err := m.once(later); err != nil { // it is not proven yet
		t.Fatal(err)
	}
	m.ran("reboot")
	m.boot = "boot-2"
	m.expectInitial(first, "b")
	m.ran()
	m.expectFile("/etc/a", "2")
	if err := m.once(later); err != nil {
		t.Fatal(err)
	}
	m.expectInitial(first, "b")
	m.expectFile("/etc/a", "2")
}

// Ignition has written the files: nothing is changed, no reboot is needed, and a file is removed
// when no configuration has it any more.
func TestInitialProvisioned(t *testing.T) {
	m := newMachine(t)
	m.cfg.Provisioned = true
	m.put("/etc/a", "1")
	if err := os.Chmod(filepath.Join(m.dir, "etc/a"), 0o644); err != nil {
		t.Fatal(err)
	}
	directories := `, "storage": {"directories": [{"path": "/data"}], "files": [{"path": "/etc/a", "contents": {"source": "data:,1"}}]}`
	m.expectInitial(rendered(t, "a", directories, nil), "a")
	m.ran()
	m.expectFile("/etc/a", "1")
	if err := m.once(rendered(t, "b", `, "storage": {"directories": [{"path": "/data"}]}`, actions(noAction()))); err != nil {
		t.Fatal(err)
	}
	m.expectFile("/etc/a", "absent")
}
