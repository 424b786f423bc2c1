package vm

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary takes the place of the lab binary, which a machine starts again as its first
// process, and for hyperkube.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == Command || os.Args[1] == InitCommand) {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		err := Main(ctx, os.Args[1], os.Args[2:], os.Stdout)
		stop()
		if err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// unfit skips a test that this machine cannot run.
func unfit(t *testing.T, why any) {
	t.Helper()
	if os.Getenv("LAB_REQUIRE_KUBELET") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// start boots a machine whose kubelet is a script, and returns when the script says "up".
func start(t *testing.T, script string) (hull *exec.Cmd, output *bufio.Reader) {
	t.Helper()
	hull, output = power(t, append(complete(t), "--hyperkube="+program(t, script)))
	expect(t, output, "up")
	return hull, output
}

// program returns the path of a script.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// power switches a machine on.
func power(t *testing.T, args []string) (hull *exec.Cmd, output *bufio.Reader) {
	t.Helper()
	return powerWith(t, os.Stderr, args)
}

// powerWith switches on a machine with that console for errors.
func powerWith(t *testing.T, errs io.Writer, args []string) (hull *exec.Cmd, output *bufio.Reader) {
	t.Helper()
	if err := Check(t.Context()); err != nil {
		unfit(t, err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	hull = exec.CommandContext(t.Context(), self, append([]string{Command}, args...)...)
	hull.Stderr = errs
	pipe, err := hull.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := hull.Start(); err != nil {
		t.Fatal(err)
	}
	return hull, bufio.NewReader(ofMachine(t, pipe))
}

// ofMachine returns what a machine says, without the line of its hull: both write to the same pipe,
// and either may be first. At the end of the test it waits until no process of the machine is left,
// which the end of the test's context has killed: they write to its folders.
func ofMachine(t *testing.T, pipe io.Reader) io.Reader {
	t.Helper()
	said, write := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(pipe)
		for lines.Scan() {
			if text := lines.Text(); !strings.HasPrefix(text, "machine vm-0 boots, ") {
				_, _ = fmt.Fprintln(write, text) // the test may have ended
			}
		}
		_ = write.CloseWithError(lines.Err())
	}()
	t.Cleanup(func() {
		_ = said.Close()
		<-ended
	})
	return said
}

func expect(t *testing.T, output *bufio.Reader, want string) {
	t.Helper()
	line, err := output.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != want {
		t.Fatalf("the machine says %q (%v), want %q", line, err, want)
	}
}

// expectOff waits until no process of the machine is left that could write.
func expectOff(t *testing.T, output *bufio.Reader) {
	t.Helper()
	if line, err := output.ReadString('\n'); err == nil {
		t.Fatalf("the machine says %q, and should be off", line)
	}
}

func TestInside(t *testing.T) {
	t.Parallel()
	hull, output := start(t, `echo up
hostname
cat /var/lib/kubelet/bootstrap.kubeconfig; echo
cat /run/cloud/volumes/$(ls /run/cloud/attached)/file; echo
touch /var/lib/kubelet/remembered /var/forgotten /run/forgotten
echo "$@"
`)
	for _, want := range []string{"vm-0", "K", "V", "kubelet"} {
		expect(t, output, want)
	}
	expectOff(t, output)
	if err := hull.Wait(); err == nil {
		t.Error("a machine whose kubelet ends ends well")
	}
	if _, err := os.Stat("/var/forgotten"); err == nil {
		t.Error("the machine wrote to the host's /var")
	}
}

// A machine that is switched off has no processes any more.
func TestPowerOff(t *testing.T) {
	t.Parallel()
	hull, output := start(t, "trap '' TERM\n(setsid sleep 1000 &)\necho up\nsleep 1000")
	if err := hull.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	expectOff(t, output)
	_ = hull.Wait()
}

func TestShutDown(t *testing.T) {
	t.Parallel()
	hull, output := start(t, `trap 'echo bye; exit 1' TERM
(trap 'echo pod; exit' TERM; echo up; while :; do sleep 0.01; done) &
wait`)
	if err := hull.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	for range 2 {
		line, err := output.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		said[strings.TrimSpace(line)] = true
	}
	if !said["bye"] || !said["pod"] {
		t.Errorf("the machine said %v on its way down", said)
	}
	expectOff(t, output)
	if err := hull.Wait(); err != nil {
		t.Errorf("a machine that is shut down: %v", err)
	}
}

// With a machine-config-daemon both services are started again when they end, and the daemon's
// request for a reboot ends the machine so that its cloud switches it on again, with another boot
// ID and the same root.
func TestReboot(t *testing.T) {
	t.Parallel()
	args := append(complete(t), "--hyperkube="+program(t, "exec sleep 1000"), "--daemon="+program(t, `for arg in "$@"; do case "$arg" in
--root=*) root=${arg#*=};; --boot-id-file=*) boot=${arg#*=};;
--reboot-command=sh,-c,*) reboot=${arg#*=sh,-c,};; --extra) extra=yes;; esac; done
echo "extra $extra"
cat $boot
if [ ! -e $root/started ]; then touch $root/started; exit 1; fi
eval "$reboot"
exec sleep 1000
`), "--daemon-flags=--extra")
	var dir string
	for _, arg := range args {
		if disk, ok := strings.CutPrefix(arg, "--dir="); ok {
			dir = disk
		}
	}
	line := func(output *bufio.Reader) string {
		t.Helper()
		text, err := output.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	hull, output := power(t, args)
	expect(t, output, "extra yes")
	first := line(output)
	expect(t, output, "extra yes") // It was started again, in the same boot.
	if again := line(output); again != first {
		t.Errorf("the boot ID is %q, and was %q", again, first)
	}
	expectOff(t, output)
	if err := hull.Wait(); err != nil {
		t.Errorf("a machine that reboots: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, RebootFile)); err != nil {
		t.Errorf("the request for the cloud: %v", err)
	}
	_, output = power(t, args)
	expect(t, output, "extra yes")
	if next := line(output); next == first || len(next) < 30 {
		t.Errorf("the boot ID is %q, and was %q before", next, first)
	}
}

// withUserData returns flags for a machine with user data, and a daemon that is a script.
func withUserData(t *testing.T, userData, daemon string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "user-data")
	if err := os.WriteFile(path, []byte(userData), 0o600); err != nil {
		t.Fatal(err)
	}
	return append(complete(t), "--user-data="+path, "--hyperkube="+program(t, "echo kubelet; exec sleep 1000"), "--daemon="+program(t, daemon))
}

// User data that is a #cloud-config has the daemon apply the first configuration before the kubelet
// starts, across a reboot.
func TestUserData(t *testing.T) {
	t.Parallel()
	args := withUserData(t, firstBootUserData, `for arg in "$@"; do case "$arg" in
--root=*) root=${arg#*=};; --initial=*) initial=${arg#*=};; --reboot-command=sh,-c,*) reboot=${arg#*=sh,-c,};; esac; done
if [ -z "$initial" ]; then echo daemon; exec sleep 1000; fi
echo "applies $(cat $initial)"
if [ ! -e $root/applied ]; then touch $root/applied; eval "$reboot"; exit 3; fi
`)
	hull, output := powerWith(t, io.Discard, args)
	expect(t, output, "applies the configuration")
	expectOff(t, output)
	if err := hull.Wait(); err != nil {
		t.Errorf("a machine that reboots: %v", err)
	}
	_, output = power(t, args)
	expect(t, output, "applies the configuration")
	started := map[string]bool{}
	for range 2 {
		line, err := output.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		started[strings.TrimSpace(line)] = true
	}
	if !started["kubelet"] || !started["daemon"] {
		t.Errorf("%v started", started)
	}
}

// A machine whose user data is damaged stays on without a kubelet, and its console has the reason.
func TestUserDataDamaged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ userData, want string }{
		"not valid": {
			"#cloud-config\nwrite_files: [{path: /a, encoding: gz+b64, content: '%'}]\n", "the user data: write_files[0], the content of /a",
		},
		"not written": {
			"#cloud-config\nwrite_files: [{path: /a}, {path: /a/b}]\nruncmd: [systemctl start kubelet.service]\n", "the user data: write_files: ",
		},
		"fails": {
			firstBootUserData,
			"user data: runcmd[2]: systemctl start machine-config-initial.service: machine-config-daemon ended with exit status 1",
		},
		"other program": {
			strings.ReplaceAll(firstBootUserData, daemonProgram, "/bin/false"),
			"user data: runcmd[2]: systemctl start machine-config-initial.service: ExecStart: expected",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, write := io.Pipe()
			hull, output := powerWith(t, write, withUserData(t, test.userData, "exit 1"))
			console := bufio.NewReader(read)
			line, err := console.ReadString('\n')
			go func() { _, _ = io.Copy(io.Discard, console) }()
			if err != nil || !strings.HasPrefix(line, test.want) {
				t.Errorf("the console has %q (%v), want %q", line, err, test.want)
			}
			if err := hull.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			expectOff(t, output) // Without a word of the kubelet.
			if err := hull.Wait(); err != nil {
				t.Errorf("a machine that is shut down: %v", err)
			}
		})
	}
}

// Orphans are reaped: no other process would.
func TestReaping(t *testing.T) {
	t.Parallel()
	_, output := start(t, `echo up
for i in 1 2 3 4 5; do (sh -c 'exit 3' & ) ; done
while :; do
  zombies=0
  for stat in /proc/[0-9]*/stat; do case "$(cat $stat 2>/dev/null)" in *') Z '*) zombies=$((zombies+1));; esac; done
  if [ $zombies = 0 ]; then echo none; exit; fi
  sleep 0.01
done`)
	expect(t, output, "none")
}

// A process that ignores SIGTERM at the shutdown is killed.
func TestShutDownKillsProcesses(t *testing.T) {
	t.Parallel()
	hull, output := start(t, "trap '' TERM; echo up; while :; do sleep 1; done")
	begin := time.Now()
	if err := hull.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	expectOff(t, output)
	if err := hull.Wait(); err != nil {
		t.Errorf("a machine that is shut down: %v", err)
	}
	if took := time.Since(begin); took < shutdownTime {
		t.Errorf("it got %v to end, of %v", took, shutdownTime)
	}
}

// A machine in which files cannot be watched does not boot.
func TestNoWatches(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c",
		`echo 3 > /proc/sys/user/max_inotify_instances && echo limited && "$0" vm --check`, self)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	output, err := cmd.CombinedOutput()
	if !strings.HasPrefix(string(output), "limited") {
		unfit(t, fmt.Sprintf("no user namespace with its own limit: %s%v", output, err))
	}
	if err == nil || !strings.Contains(string(output), "fs.inotify.max_user_instances") {
		t.Errorf("it says %s(%v), want the limit to be named", output, err)
	}
}
