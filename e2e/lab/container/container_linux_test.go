package container

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/labtest"
)

func TestMain(m *testing.M) {
	labtest.Main(m, func(m *testing.M) { goleak.VerifyTestMain(m) })
}

// running is a container under test.
type running struct {
	*Container
	output *os.File
}

// run starts a shell script in a container.
func run(t *testing.T, script string, change func(*Config)) running {
	t.Helper()
	dir, err := os.MkdirTemp("/run", "container") //nolint:usetesting // It has to be the machine's own file system.
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	config := Config{
		Dir: filepath.Join(dir, "it"), Hostname: "pod-0", Args: []string{"sh", "-ec", script},
		Env: []string{"PATH=/usr/bin:/bin"}, Stdout: write, Stderr: write, Clock: clock.RealClock{},
	}
	if change != nil {
		change(&config)
	}
	c, err := Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Kill()
		<-c.Done()
		_ = read.Close()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return running{c, read}
}

// say waits for a line that a container writes.
func (r running) say(t *testing.T, want string) {
	t.Helper()
	line := make([]byte, len(want)+1)
	if _, err := io.ReadFull(r.output, line); err != nil || string(line) != want+"\n" {
		t.Fatalf("the container wrote %q (%v), want %q", line, err, want)
	}
}

// end waits for the container's end, and returns its output.
func (r running) end(t *testing.T) (code int, output string) {
	t.Helper()
	data, err := io.ReadAll(r.output)
	if err != nil {
		t.Fatal(err)
	}
	<-r.Done()
	return r.Exit().Code, string(data)
}

func TestEnvironmentOfAContainer(t *testing.T) {
	volume := t.TempDir()
	if err := os.WriteFile(filepath.Join(volume, "file"), []byte("content\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	mounts := func(c *Config) {
		c.Mounts = []Mount{
			{Source: filepath.Join(volume, "file"), Target: "/data/inner/file", ReadOnly: true}, // deeper, but named first
			{Source: volume, Target: "/data"},
			{Source: volume, Target: "/var/run/secrets/some", ReadOnly: true}, // through a link of the machine
		}
	}
	tests := map[string]struct {
		script string
		change func(*Config)
		code   int
		want   string
	}{
		"host name": {script: "hostname", want: "pod-0\n"},
		"environment": {
			script: "env | grep -v -e PWD -e SHLVL -e ^_ | sort", change: func(c *Config) { c.Env = append(c.Env, "A=b c") },
			want: "A=b c\nPATH=/usr/bin:/bin\n",
		},
		"exit code":          {script: "exit 7", code: 7},
		"killed by a signal": {script: "kill -KILL $$", code: 137},
		"working folder":     {script: "pwd", change: func(c *Config) { c.WorkingDir = "/made/for/it" }, want: "/made/for/it\n"},
		"writes are its own": {script: "echo x > /etc/container-test; cat /etc/container-test", want: "x\n"},
		"read-only root": {
			script: "echo x 2>&- > /etc/container-test || echo no", change: func(c *Config) { c.ReadOnlyRoot = true }, want: "no\n",
		},
		"devices": {script: "echo x > /dev/null; head -c2 /dev/zero | wc -c; echo y > /dev/shm/y; cat /dev/shm/y", want: "2\ny\n"},
		"volumes": {
			script: "cat /data/file /data/inner/file /var/run/secrets/some/file", change: mounts, want: "content\ncontent\ncontent\n",
		},
		"writable volume":  {script: "echo more > /data/new; cat /data/new", change: mounts, want: "more\n"},
		"read-only volume": {script: "echo x 2>&- > /var/run/secrets/some/file || echo no", change: mounts, want: "no\n"},
		"processes":        {script: "test -e /proc/self/status && echo yes", want: "yes\n"},
		"user without root": {
			script: "id -u; id -g", change: func(c *Config) { c.User = User{UID: 1234, GID: 5678, Groups: []uint32{42}} },
			want: or("1234\n5678\n", "0\n0\n"),
		},
		"supplemental groups": {
			script: "id -G", change: func(c *Config) { c.User = User{UID: 1234, GID: 5678, Groups: []uint32{42}} },
			want: or("5678 42\n", machineGroups(t)),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			code, output := run(t, test.script, test.change).end(t)
			if diff := cmp.Diff(test.want, output); diff != "" || code != test.code {
				t.Errorf("exit code %d, want %d; output (-want +got):\n%s", code, test.code, diff)
			}
			if _, err := os.Stat("/etc/container-test"); err == nil {
				t.Error("what the container wrote reached the machine")
			}
		})
	}
}

// Other file systems of the machine are read-only.
func TestOtherFileSystems(t *testing.T) {
	for _, dir := range []string{"/opt", "/opt/inner", "/opt/inner/innermost"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte(dir+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, output := run(t,
		"cd /opt; cat file inner/file inner/innermost/file; for d in . inner inner/innermost; do touch $d/new 2>&- && echo $d; done", nil).end(t)
	if want := "/opt\n/opt/inner\n/opt/inner/innermost\n.\n"; output != want {
		t.Errorf("exit code %d, output %q, want %q", code, output, want)
	}
	if _, err := os.Stat("/opt/new"); err == nil {
		t.Error("what the container wrote reached the machine")
	}
}

// or returns the expectation for several users, or for only one.
func or(several, single string) string {
	if singleUser() {
		return single
	}
	return several
}

func machineGroups(t *testing.T) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "id", "-G").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(output)
}

func TestStartRejects(t *testing.T) {
	for name, test := range map[string]struct {
		config Config
		want   error
	}{
		"unknown program":  {Config{Args: []string{"no-such-program"}, Env: []string{"PATH=/usr/bin"}}, exec.ErrNotFound},
		"no such file":     {Config{Args: []string{"/no/such/program"}}, os.ErrNotExist},
		"no such volume":   {Config{Args: []string{"/bin/true"}, Mounts: []Mount{{Source: "/no/such/volume", Target: "/x"}}}, os.ErrNotExist},
		"unmountable path": {Config{Args: []string{"/bin/true"}, Mounts: []Mount{{Source: "/etc", Target: "/proc/x"}}}, os.ErrNotExist},
	} {
		t.Run(name, func(t *testing.T) {
			test.config.Dir = filepath.Join("/run", t.Name())
			test.config.Hostname, test.config.Clock = "x", clock.RealClock{}
			if _, err := Start(test.config); !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
		})
	}
}

func TestTerminate(t *testing.T) {
	c := run(t, "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.01; done", nil)
	c.say(t, "up")
	c.Terminate()
	if code, output := c.end(t); code != 3 || output != "bye\n" {
		t.Errorf("exit code %d, output %q", code, output)
	}
}

// All processes of a container end with its main process.
func TestNothingIsLeft(t *testing.T) {
	for name, script := range map[string]string{
		"own session":   "setsid sleep 1000 & echo up; exec sleep 1000",
		"many":          "for i in 1 2 3 4 5 6 7 8; do (trap '' TERM; sleep 1000) & done; echo up; exec sleep 1000",
		"main is short": "setsid sleep 1000 & echo up",
	} {
		t.Run(name, func(t *testing.T) {
			c := run(t, script, nil)
			id := c.space.id
			c.say(t, "up")
			c.Kill()
			<-c.Done()
			left := &namespaces{id: id}
			entries, err := filepath.Glob("/proc/[0-9]*")
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range entries {
				pid := strings.TrimPrefix(entry, "/proc/")
				if n := atoi(pid); left.has(n) {
					t.Errorf("process %d lives", n)
				}
			}
		})
	}
}

func atoi(digits string) (n int) {
	for _, d := range digits {
		n = 10*n + int(d-'0')
	}
	return n
}

func TestExec(t *testing.T) {
	c := run(t, "echo here > /only-in-the-container; echo up; exec sleep 1000", nil)
	c.say(t, "up")
	var stdout, stderr strings.Builder
	code, err := c.Exec(t.Context(), []string{"sh", "-c", "cat; cat /only-in-the-container; hostname; echo oops >&2; exit 4"},
		strings.NewReader("input\n"), &stdout, &stderr)
	got := []any{code, err, stdout.String(), stderr.String()}
	if diff := cmp.Diff([]any{4, nil, "input\nhere\npod-0\n", "oops\n"}, got); diff != "" {
		t.Errorf("exec (-want +got):\n%s", diff)
	}
	if _, err := c.Exec(t.Context(), []string{"no-such-program"}, nil, nil, nil); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("unknown program: %v, want %v", err, exec.ErrNotFound)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Exec(short, []string{"sleep", "1000"}, nil, io.Discard, io.Discard); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a command that takes too long: %v, want %v", err, context.DeadlineExceeded)
	}
	c.Kill()
	<-c.Done()
	if _, err := c.Exec(t.Context(), []string{"true"}, nil, nil, nil); err == nil {
		t.Error("a command ran in a container that has ended")
	}
}
