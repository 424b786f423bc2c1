package vm

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// firstBootUserData has the units of the documented form.
const firstBootUserData = `#cloud-config
write_files:
- path: /etc/machine-config-daemon/initial.json
  permissions: "0600"
  content: the configuration
- path: /etc/systemd/system/machine-config-initial.service
  content: |
    [Unit]
    Before=kubelet.service
    [Service]
    Type=oneshot
    ExecStart=/usr/local/bin/machine-config-daemon --initial=/etc/machine-config-daemon/initial.json
    [Install]
    WantedBy=multi-user.target
    RequiredBy=kubelet.service
- path: /etc/systemd/system/machine-config-daemon.service
  content: "[Install]\nWantedBy=multi-user.target\n"
runcmd:
- systemctl daemon-reload
- systemctl enable kubelet.service machine-config-initial.service machine-config-daemon.service
- systemctl start machine-config-initial.service && systemctl start --no-block kubelet.service machine-config-daemon.service
`

// computer is a machine's root, and what ran in it.
type computer struct {
	*testing.T

	dir     string
	console bytes.Buffer
	ran     [][]string
	fails   error
}

// boot boots the machine with user data, and returns what it runs.
func (c *computer) boot(userData string, first bool) []string {
	c.Helper()
	config, err := ParseCloudConfig([]byte(userData))
	if err != nil {
		c.Fatal(err)
	}
	root, err := os.OpenRoot(c.dir)
	if err != nil {
		c.Fatal(err)
	}
	defer root.Close()
	s := &software{
		config: config, root: root, services: []string{"kubelet.service", "machine-config-daemon.service"}, log: &c.console,
		tried: map[string]error{},
		run: func(exec []string) error {
			c.ran = append(c.ran, exec)
			return c.fails
		},
	}
	if first {
		err = s.firstBoot(func() error { return nil })
	} else {
		err = s.laterBoot()
	}
	if err != nil {
		c.Error(err)
	}
	return s.running
}

// The first configuration is applied before the kubelet starts, at each boot. While it is not, the
// kubelet does not run; the daemon does from the second boot on, when its unit is enabled.
func TestSoftwareFirstConfiguration(t *testing.T) {
	c := &computer{T: t, dir: t.TempDir(), fails: errors.New("rebooting")}
	if running := c.boot(firstBootUserData, true); len(running) > 0 || len(c.ran) != 1 {
		t.Errorf("at the first boot %v run, after %v", running, c.ran)
	}
	if !strings.Contains(c.console.String(), "user data: runcmd[2]: systemctl start machine-config-initial.service: rebooting") {
		t.Errorf("the console has %q", c.console.String())
	}
	if running := c.boot(firstBootUserData, false); !cmp.Equal(running, []string{"machine-config-daemon.service"}) || len(c.ran) != 2 {
		t.Errorf("while the configuration fails %v run, after %v", running, c.ran)
	}
	if !strings.Contains(c.console.String(), "kubelet.service: not started, because it requires machine-config-initial.service: rebooting") {
		t.Errorf("the console has %q", c.console.String())
	}
	c.fails = nil
	both := []string{"kubelet.service", "machine-config-daemon.service"}
	if running := c.boot(firstBootUserData, false); !cmp.Equal(running, both) || len(c.ran) != 3 {
		t.Errorf("with a configuration %v run, after %v", running, c.ran)
	}
	want := []string{"/usr/local/bin/machine-config-daemon", "--initial=/etc/machine-config-daemon/initial.json"}
	if diff := cmp.Diff(want, c.ran[2]); diff != "" {
		t.Errorf("program (-want +got):\n%s", diff)
	}
	initial := filepath.Join(c.dir, "etc/machine-config-daemon/initial.json")
	info, err := os.Stat(initial)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	for link, to := range map[string]string{
		"kubelet.service.requires/machine-config-initial.service": "machine-config-initial.service",
		"multi-user.target.wants/machine-config-initial.service":  "machine-config-initial.service",
		"multi-user.target.wants/machine-config-daemon.service":   "machine-config-daemon.service",
		"multi-user.target.wants/kubelet.service":                 "kubelet.service",
	} {
		if target, err := os.Readlink(filepath.Join(c.dir, unitDir, link)); err != nil || target != "/"+unitDir+"/"+to {
			t.Errorf("%s: %q, %v", link, target, err)
		}
	}
}

// A machine that needs no reboot for its first configuration starts everything at the first boot.
func TestSoftwareNoReboot(t *testing.T) {
	c := &computer{T: t, dir: t.TempDir()}
	if running := c.boot(firstBootUserData, true); len(running) != 2 || len(c.ran) != 1 || c.console.Len() > 0 {
		t.Errorf("%v run, after %v; the console has %q", running, c.ran, c.console.String())
	}
}

// Units that a configuration enables are not started, and neither is what the machine does not
// support.
func TestSoftwareOtherUnits(t *testing.T) {
	c := &computer{T: t, dir: t.TempDir()}
	c.boot(strings.ReplaceAll(firstBootUserData, "Type=oneshot", "Restart=always"), true)
	if !strings.Contains(c.console.String(), "expected Type=oneshot") || len(c.ran) > 0 {
		t.Errorf("the console has %q, and %v ran", c.console.String(), c.ran)
	}
	c.boot(firstBootUserData, true)
	for _, dir := range []string{"multi-user.target.wants", "kubelet.service.requires"} {
		if err := os.Symlink("/etc/systemd/system/other.service", filepath.Join(c.dir, unitDir, dir, "other.service")); err != nil {
			t.Fatal(err)
		}
	}
	c.console.Reset()
	if running := c.boot(firstBootUserData, false); len(running) != 2 || c.console.Len() > 0 {
		t.Errorf("%v run; the console has %q", running, c.console.String())
	}
}

// A unit that requires itself is not started.
func TestSoftwareLoop(t *testing.T) {
	c := &computer{T: t, dir: t.TempDir()}
	itself := strings.NewReplacer("By=kubelet.service", "By=kubelet.service machine-config-initial.service",
		"Before=", "Before=machine-config-initial.service ")
	c.boot(itself.Replace(firstBootUserData), true)
	if !strings.Contains(c.console.String(), "it requires itself") || len(c.ran) > 0 {
		t.Errorf("the console has %q, and %v ran", c.console.String(), c.ran)
	}
}

// A file of user data is not written outside of the machine.
func TestSoftwareNoEscape(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "etc")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s := &software{config: &CloudConfig{Files: []File{{Path: "/etc/a", Mode: 0o644}}}, root: root}
	if err := s.firstBoot(func() error { return nil }); err == nil {
		t.Error("a file was written through a link")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestFirstConfigurationArgs(t *testing.T) {
	const initial = "--initial=/etc/initial.json"
	for name, test := range map[string]struct {
		exec []string
		want string
	}{
		"initial":       {[]string{daemonProgram, initial}, ""},
		"provisioned":   {[]string{daemonProgram, initial, "--provisioned"}, ""},
		"none":          {nil, "ExecStart"},
		"other program": {[]string{"/bin/sh", "-c", "reboot"}, "/bin/sh"},
		"other flag":    {[]string{daemonProgram, initial, "--root=/"}, "--root=/"},
		"relative":      {[]string{daemonProgram, "--initial=etc/initial.json"}, "absolute path"},
	} {
		t.Run(name, func(t *testing.T) {
			args, err := firstConfigurationArgs(test.exec)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("error %v, want one with %q", err, test.want)
				}
				return
			}
			line := strings.Join(args, " ")
			if err != nil || !strings.Contains(line, "--root="+RootDir) || !strings.Contains(line, "--initial="+RootDir+"/etc/initial.json") {
				t.Errorf("%q, %v", line, err)
			}
		})
	}
}
