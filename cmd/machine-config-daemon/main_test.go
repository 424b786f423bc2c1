package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// command runs the program, and returns its exit code and what it prints.
func command(t *testing.T, args ...string) (code int, printed string) {
	t.Helper()
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	code = execute(t.Context(), cmd, args)
	return code, out.String()
}

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	full := filepath.Join(dir, name)
	if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return full
}

func TestFileIsAppliedBelowARoot(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	config := write(t, dir, "config.json",
		`{"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "/etc/a", "contents": {"source": "data:,x"}}]}}`)
	boot := write(t, dir, "boot", "boot-1\n")
	args := []string{"--root=" + root, "--systemd=none", "--config=" + config, "--boot-id-file=" + boot}
	if code, printed := command(t, args...); code != exitReboot {
		t.Fatalf("expected the exit code of a reboot, got %d: %s", code, printed)
	}
	content, err := os.ReadFile(filepath.Join(root, "etc/a"))
	if err != nil || string(content) != "x" {
		t.Errorf("%q %v", content, err)
	}
	write(t, dir, "boot", "boot-2\n")
	if code, printed := command(t, args...); code != 0 || !strings.HasSuffix(printed, ": done\n") {
		t.Errorf("got %d: %s", code, printed)
	}
	write(t, dir, "config.json", `{"ignition": {"version": "3.5.0"}, "storage": {"links": [{"path": "/l", "target": "x"}]}}`)
	if code, printed := command(t, args...); code != exitFailed || !strings.Contains(printed, "config.storage.links") {
		t.Errorf("got %d: %s", code, printed)
	}
}

// At its first boot a machine gets the configuration of a file. It reboots once, and at each later
// boot nothing is done, regardless of what it has by then.
func TestInitialConfigurationIsAppliedOnce(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	config := write(t, dir, "config.json",
		`{"metadata": {"name": "rendered-p-1"}, "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "/etc/a", "contents": {"source": "data:,x"}}]}}}}`)
	boot := write(t, dir, "boot", "boot-1\n")
	common := []string{"--root=" + root, "--systemd=none", "--boot-id-file=" + boot}
	initial := append(slices.Clone(common), "--initial="+config, "--reboot-command=touch,"+filepath.Join(dir, "rebooted"))
	if code, printed := command(t, initial...); code != exitReboot {
		t.Fatalf("expected the exit code of a reboot, got %d: %s", code, printed)
	}
	if _, err := os.Stat(filepath.Join(dir, "rebooted")); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"boot-2\n", "boot-3\n"} {
		write(t, dir, "boot", id)
		if code, printed := command(t, initial...); code != 0 || printed != "rendered-p-1: done\n" {
			t.Errorf("%s: got %d: %s", id, code, printed)
		}
	}
	other := write(t, dir, "other.json",
		`{"metadata": {"name": "rendered-p-2"}, "spec": {"actions": [{"path": "/etc/a", "action": "None"}], "config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "/etc/a", "contents": {"source": "data:,y"}}]}}}}`)
	if code, printed := command(t, append(common, "--config="+other)...); code != 0 {
		t.Fatalf("got %d: %s", code, printed)
	}
	if code, printed := command(t, initial...); code != 0 || printed != "rendered-p-2: done\n" {
		t.Errorf("got %d: %s", code, printed)
	}
	content, err := os.ReadFile(filepath.Join(root, "etc/a"))
	if err != nil || string(content) != "y" {
		t.Errorf("the first configuration was applied again: %q %v", content, err)
	}
}

func TestRebootCommandIsRun(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	config := write(t, dir, "config.json",
		`{"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "/a", "contents": {"source": "data:,x"}}]}}`)
	boot := write(t, dir, "boot", "boot-1\n")
	code, printed := command(t, "--root="+root, "--systemd=none", "--config="+config, "--boot-id-file="+boot,
		"--reboot-command=touch,"+filepath.Join(dir, "rebooted"))
	if _, err := os.Stat(filepath.Join(dir, "rebooted")); err != nil || code != 0 {
		t.Errorf("got %d: %s: %v", code, printed, err)
	}
}

// The documentation runs the program with flags that exist.
func TestDocumentationUsesFlagsThatExist(t *testing.T) {
	call := regexp.MustCompile(`machine-config-daemon((?: --[a-z-]+(?:=\S+)?)+)`)
	name := regexp.MustCompile(`--([a-z-]+)`)
	calls := 0
	for _, page := range []string{"machine-config.md", "machine-config-daemon.md"} {
		text, err := os.ReadFile(filepath.Join("../../docs/operations", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range call.FindAllSubmatch(text, -1) {
			calls++
			for _, flag := range name.FindAllSubmatch(found[1], -1) {
				if newCommand().Flags().Lookup(string(flag[1])) == nil {
					t.Errorf("%s: %s is no flag", page, flag[0])
				}
			}
		}
	}
	if calls < 4 {
		t.Errorf("%d calls were found", calls)
	}
}

func TestWrongFlags(t *testing.T) {
	for _, tc := range []struct {
		want string
		args []string
	}{
		{"or --kubeconfig and --node-name", nil},
		{"or --kubeconfig and --node-name", []string{"--kubeconfig=x"}},
		{"and not several", []string{"--config=x", "--node-name=n"}},
		{"and not several", []string{"--initial=x", "--node-name=n"}},
		{"and not several", []string{"--initial=x", "--config=x"}},
		{"--systemd: expected systemctl or none", []string{"--config=x", "--systemd=x"}},
		{"--systemd: expected none with --root=/x", []string{"--config=x", "--root=/x"}},
		{"--drift: expected report or repair", []string{"--config=x", "--drift=x"}},
		{"--state-dir: expected an absolute path", []string{"--config=x", "--state-dir=/a/../b"}},
		{"health-timeout", []string{"--config=x", "--health-timeout=-1s"}},
	} {
		if code, printed := command(t, tc.args...); code != exitUsage || !strings.Contains(printed, tc.want) {
			t.Errorf("%q: expected %q, got %d: %s", tc.args, tc.want, code, printed)
		}
	}
}

func TestMissingFiles(t *testing.T) {
	root := t.TempDir()
	for _, tc := range []struct {
		want string
		args []string
	}{
		{"--root: ", []string{"--root=" + root + "/none", "--config=x"}},
		{"--config: ", []string{"--root=" + root, "--config=" + root + "/none"}},
		{"--initial: ", []string{"--root=" + root, "--initial=" + root + "/none"}},
		{"--hook-dir: ", []string{"--root=" + root, "--config=x", "--hook-dir=" + root + "/none"}},
		{"--kubeconfig: ", []string{"--root=" + root, "--kubeconfig=" + root + "/none", "--node-name=n"}},
	} {
		if code, printed := command(t, append(tc.args, "--systemd=none")...); code != exitFailed || !strings.Contains(printed, tc.want) {
			t.Errorf("%q: expected %q, got %d: %s", tc.args, tc.want, code, printed)
		}
	}
}
