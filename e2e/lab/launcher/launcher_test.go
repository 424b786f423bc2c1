package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/labtest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/proxy"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newFolder(t *testing.T) Folder {
	t.Helper()
	folder := Folder(filepath.Join(t.TempDir(), "lab [1]*")) // It must not be used as a pattern.
	if err := os.MkdirAll(folder.path(logsDir), 0o700); err != nil {
		t.Fatal(err)
	}
	return folder
}

// newLauncher returns a launcher that has one process, sleeper.
func newLauncher(t *testing.T) (*Launcher, Folder) {
	t.Helper()
	folder := newFolder(t)
	l := &Launcher{
		options: Options{Dir: string(folder)}, clock: clock.RealClock{}, log: slog.New(slog.DiscardHandler), say: func(string) {},
		proxies: proxy.NewSet(), state: State{ID: t.Name() + folder.path("")}, endpoints: map[string]string{}, probes: map[string]probe{},
		pods: map[string]Pod{},
	}
	l.supervisor = supervise.New(supervise.Config{
		Env: []string{IDVariable + "=" + l.state.ID}, StopTimeout: labtest.Standstill, Changed: l.changed, Clock: clock.RealClock{},
	})
	if err := l.supervisor.Launch(supervise.Spec{
		Name: "sleeper", Path: "/bin/sleep", Args: []string{"1000"}, Log: folder.Log("sleeper"),
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.supervisor.Stop(context.WithoutCancel(t.Context()), "sleeper"); err != nil {
			t.Error(err)
		}
	})
	return l, folder
}

func readPIDs(t *testing.T, folder Folder) map[string]int {
	t.Helper()
	var numbers map[string]int
	if err := folder.readJSON(pidsFile, &numbers); err != nil {
		t.Fatal(err)
	}
	return numbers
}

func TestAPI(t *testing.T) {
	l, folder := newLauncher(t)
	server := httptest.NewServer(l)
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	l.endpoint(launcherName, server.URL, nil)
	l.endpoint("sleeper", "", func(context.Context) error { return errors.New("fast asleep") })
	client := NewClient(folder)

	for _, step := range []struct {
		action string
		want   supervise.State
		starts int
		fails  string
	}{
		{action: "start", fails: "runs already"},
		{action: "crash", want: supervise.Exited, starts: 1},
		{action: "kill", want: supervise.Exited, starts: 1},
		{action: "pause", fails: "does not run"},
		{action: "start", want: supervise.Running, starts: 2},
		{action: "restart", want: supervise.Running, starts: 3},
		{action: "stop", want: supervise.Exited, starts: 3},
		{action: "stop", want: supervise.Exited, starts: 3},
		{action: "resume", fails: "does not run"},
		{action: "explode", fails: "unknown action"},
	} {
		p, err := client.Act(t.Context(), "sleeper", step.action)
		if step.fails != "" {
			if err == nil || !strings.Contains(err.Error(), step.fails) {
				t.Errorf("%s: error %v, want %q", step.action, err, step.fails)
			}
			continue
		}
		if err != nil || p.State != step.want || p.Starts != step.starts {
			t.Errorf("%s: %+v, %v; want it %s after %d starts", step.action, p, err, step.want, step.starts)
		}
		if got := readPIDs(t, folder)["sleeper"]; got != p.PID {
			t.Errorf("%s: %s says %d, want %d", step.action, pidsFile, got, p.PID)
		}
	}
	if _, err := client.Act(t.Context(), "unknown", "kill"); err == nil || !strings.Contains(err.Error(), "unknown process") {
		t.Errorf("an unknown process: %v", err)
	}
	list, err := client.Processes(t.Context())
	if err != nil || len(list) != 1 || list[0].Name != "sleeper" {
		t.Errorf("processes: %v, %v", list, err)
	}
	health, err := client.Health(t.Context())
	if diff := cmp.Diff(Health{"sleeper": "fast asleep"}, health); diff != "" || err != nil {
		t.Errorf("health: %v (-want +got):\n%s", err, diff)
	}
}

func TestAPIStatusCodes(t *testing.T) {
	l, _ := newLauncher(t)
	for request, want := range map[string]int{
		"GET /v1/processes":                  http.StatusOK,
		"GET /v1/processes/sleeper":          http.StatusOK,
		"GET /v1/processes/unknown":          http.StatusNotFound,
		"POST /v1/processes/sleeper/start":   http.StatusConflict,
		"POST /v1/processes/sleeper/explode": http.StatusNotFound,
		"GET /v1/processes/sleeper/kill":     http.StatusMethodNotAllowed,
		"GET /":                              http.StatusNotFound,
	} {
		method, path, _ := strings.Cut(request, " ")
		recorder := httptest.NewRecorder()
		l.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		if recorder.Code != want {
			t.Errorf("%s: %d, want %d", request, recorder.Code, want)
		}
	}
}

// A process that ends by itself is taken out of the files.
func TestUnexpectedEnd(t *testing.T) {
	l, folder := newLauncher(t)
	p, err := l.supervisor.Get("sleeper")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"sleeper": p.PID, "launcher": os.Getpid()}, readPIDs(t, folder)); diff != "" {
		t.Errorf("process numbers (-want +got):\n%s", diff)
	}
	ended, err := l.supervisor.Ended("sleeper")
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), "kill", "-9", fmt.Sprint(p.PID)).Run(); err != nil {
		t.Fatal(err)
	}
	<-ended
	labtest.For(t, "its end is recorded", func() bool { return readPIDs(t, folder)["sleeper"] == 0 })
}

// sleeper starts a process that belongs to no supervisor.
func sleeper(t *testing.T, env ...string) supervise.ID {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sleep", "1000")
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
	})
	id, err := supervise.Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// The launcher was killed: the processes that it had recorded are ended, and those with its
// environment variable; no others.
func TestDownAfterACrash(t *testing.T) {
	folder := newFolder(t)
	id := "mark of " + t.TempDir()
	noted, marked, other := sleeper(t), sleeper(t, IDVariable+"="+id), sleeper(t, IDVariable+"="+id+"x")
	reused := other
	reused.Start-- // was recorded, has ended, and now another process has its number
	launcher := supervise.ID{PID: noted.PID, Start: noted.Start - 1, Boot: noted.Boot}
	state := State{ID: id, Processes: map[string]supervise.ID{launcherName: launcher, "noted": noted, "reused": reused}}
	if err := folder.writeJSON(stateFile, state); err != nil {
		t.Fatal(err)
	}

	_, err := alreadyUp(t.Context(), Options{Dir: string(folder)})
	if err == nil || !strings.Contains(err.Error(), "a part of a lab") {
		t.Errorf("up finds: %v, want a part of a lab", err)
	}
	if err := Status(t.Context(), folder, io.Discard); err == nil || !strings.Contains(err.Error(), `["noted"]`) {
		t.Errorf("status finds: %v, want the process noted", err)
	}
	for _, want := range []string{"2 processes", "down already"} {
		var said string
		if err := Down(t.Context(), folder, clock.RealClock{}, func(text string) { said += text }); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(said, want) {
			t.Errorf("down says %q, want %q", said, want)
		}
	}
	if !noted.State().Gone() || !marked.State().Gone() || other.State().Gone() {
		t.Errorf("gone: noted %v, marked %v, other %v; want all but the other", noted.State().Gone(), marked.State().Gone(), other.State().Gone())
	}
	if numbers := readPIDs(t, folder); len(numbers) != 0 {
		t.Errorf("processes afterwards: %v", numbers)
	}
}

func TestDownOfNothing(t *testing.T) {
	folder := Folder(filepath.Join(t.TempDir(), "nothing"))
	if err := Down(t.Context(), folder, clock.RealClock{}, func(string) {}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(string(folder)); !absent(err) {
		t.Errorf("it created the folder: %v", err)
	}
}

// A folder of other things that have the names of a lab's files is refused, and keeps them. An
// empty folder of such a name is not one.
func TestClearRefusesAFolderThatNoLabHasCreated(t *testing.T) {
	folder := newFolder(t)
	if err := os.MkdirAll(folder.path("logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := folder.clear(); err != nil {
		t.Errorf("with an empty folder: %v", err)
	}
	if err := os.MkdirAll(folder.path("cloudsim/mine"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := folder.clear(); err == nil || !strings.Contains(err.Error(), "cloudsim") {
		t.Errorf("want an error that names cloudsim, got %v", err)
	}
	if _, err := os.Stat(folder.path("cloudsim/mine")); err != nil {
		t.Errorf("it is not there any more: %v", err)
	}
}

// Files that a lab did not create are kept.
func TestClear(t *testing.T) {
	folder := newFolder(t)
	for _, path := range []string{
		"admin.kubeconfig", "pki/control/ca.key", "etcd/data", "logs/etcd.log", "audit.log", "target-audit.log", "state.json", "notes.txt",
		"mine/pki/x",
	} {
		if err := os.MkdirAll(filepath.Dir(folder.path(path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(folder.path(path), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := folder.clear(); err != nil {
		t.Fatal(err)
	}
	var left []string
	err := filepath.WalkDir(string(folder), func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			left = append(left, strings.TrimPrefix(path, string(folder)+"/"))
		}
		return err
	})
	if diff := cmp.Diff([]string{"mine/pki/x", "notes.txt"}, left); diff != "" || err != nil {
		t.Errorf("%v; files left (-want +got):\n%s", err, diff)
	}
}

func TestLock(t *testing.T) {
	folder := newFolder(t)
	unlock, err := folder.lock(t.Context(), clock.RealClock{}, func(string) { t.Error("waits although no other command runs") })
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := folder.lock(short, clock.RealClock{}, func(string) {}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second command: %v, want it to wait", err)
	}
	got := make(chan error, 1)
	go func() {
		second, err := folder.lock(t.Context(), clock.RealClock{}, func(string) { unlock() })
		if err == nil {
			second()
		}
		got <- err
	}()
	if err := <-got; err != nil {
		t.Errorf("a second command, after the first: %v", err)
	}
}

func TestValidate(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{hyperkubeBinary, cloudsimBinary, fleetBinary, driverBinary} {
		if err := os.WriteFile(filepath.Join(bin, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		options Options
		want    string
	}{
		"fine":           {Options{Bin: bin, Clusters: 2, Replicas: 3, Restart: RestartAlways}, ""},
		"a landscape":    {Options{Bin: bin, Clusters: 3, Replicas: 1, Restart: RestartNever}, ""},
		"all are light":  {Options{Bin: bin, Light: 3, Replicas: 1, Restart: RestartNever}, ""},
		"no cluster":     {Options{Bin: bin, Replicas: 1, Restart: RestartNever}, "--clusters: expected 1 to"},
		"many are light": {Options{Bin: bin, Clusters: 1, Light: 1001, Replicas: 1, Restart: RestartNever}, "--light: expected 0 to 1000"},
		"nothing serves": {Options{Bin: bin, Clusters: 3, Restart: RestartNever}, "expected it with --replicas"},
		"no fleet":       {Options{Bin: bin, Clusters: 1, Restart: RestartAlways, Nodes: 3}, ""},
		"less than none": {Options{Bin: bin, Clusters: 1, Restart: RestartAlways, Replicas: -1}, "--replicas: expected 0 to"},
		"many Nodes":     {Options{Bin: bin, Clusters: 1, Restart: RestartAlways, Nodes: 21}, "--nodes: expected 0 to 20"},
		"Nodes of two":   {Options{Bin: bin, Clusters: 2, Replicas: 1, Restart: RestartAlways, Nodes: 1}, "--nodes=1: expected one cluster"},
		"no such policy": {Options{Bin: bin, Clusters: 1, Replicas: 2, Restart: "sometimes"}, "--restart: expected"},
		"nothing built":  {Options{Bin: t.TempDir(), Clusters: 1, Replicas: 1, Restart: RestartAlways}, "make build"},
		"no daemon": {
			Options{Bin: bin, Clusters: 1, Replicas: 1, Restart: RestartAlways, MachineConfiguration: true},
			"binary machine-config-daemon is missing",
		},
		"daemon's flags": {Options{Bin: bin, Clusters: 1, Replicas: 1, Restart: RestartAlways, DaemonFlags: "--v=4"}, "--daemon-flags"},
		"no Jaeger":      {Options{Bin: bin, Clusters: 1, Replicas: 1, Restart: RestartAlways, Tracing: true}, "build-jaeger"},
		"a driver twice": {
			Options{Bin: bin, Clusters: 1, Replicas: 1, Restart: RestartAlways, Drivers: "simulated=cloudsim"},
			"--drivers: expected other providers than simulated",
		},
	} {
		if test.options.Dir == "" {
			test.options.Dir = "/lab"
		}
		if err := test.options.Validate(); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestSockets(t *testing.T) {
	short := Options{Dir: "/lab"}
	if got := short.socketOf("a"); got != "/lab/sockets/a.sock" {
		t.Errorf("got %s", got)
	}
	one, other := Options{Dir: "/" + strings.Repeat("long/", 20)}, Options{Dir: "/" + strings.Repeat("long/", 21)}
	if err := plugin.CheckSocket(one.socketOf("a")); err != nil || one.socketOf("a") == other.socketOf("a") {
		t.Errorf("got %s and %s, %v; want two paths that a socket can have", one.socketOf("a"), other.socketOf("a"), err)
	}
}

func TestPorts(t *testing.T) {
	var one, other ports
	seen := map[int]bool{}
	for range 20 {
		for _, lab := range []*ports{&one, &other} {
			taken, err := lab.take(t.Context(), 25)
			if err != nil {
				t.Fatal(err)
			}
			for _, port := range taken {
				if seen[port] || port < firstPort || port > lastPort {
					t.Errorf("port %d, which a lab has or which is outside of the range", port)
				}
				seen[port] = true
			}
		}
	}
}

func TestCulprit(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte(strings.Repeat("line\n", 100)+"last words\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := &culprit{name: "etcd", log: log, err: errEnded}
	if text := err.Error(); strings.Count(text, "line") != 14 || !strings.HasSuffix(text, "last words") || !errors.Is(err, errEnded) {
		t.Errorf("error: %s", text)
	}
}

func TestState(t *testing.T) {
	folder := newFolder(t)
	want := State{
		ID: "x", Options: Options{Dir: "d", Clusters: 2}, Processes: map[string]supervise.ID{"a": {PID: 1, Start: 2, Boot: "b"}}, Ready: true,
	}
	if err := folder.writeJSON(stateFile, want); err != nil {
		t.Fatal(err)
	}
	got, err := folder.ReadState()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	data, err := json.Marshal(pids(got.Processes))
	if err != nil || string(data) != `{"a":1}` {
		t.Errorf("process numbers: %s, %v", data, err)
	}
}
