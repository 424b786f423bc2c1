//go:build linux

package cri

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/labtest"
)

func TestMain(m *testing.M) {
	labtest.Main(m, func(m *testing.M) { goleak.VerifyTestMain(m) })
}

// fixture is a runtime with one pod, as a kubelet sees it.
type fixture struct {
	t       *testing.T
	runtime runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
	logs    string
	sandbox string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir, err := os.MkdirTemp("/run", "cri") //nolint:usetesting // It has to be the machine's own file system.
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	images := t.TempDir()
	addImage(t, images, "hello", "#!/bin/sh\necho hello from $0 $*\n")
	addImage(t, images, "hello:v2", "#!/bin/sh\necho hello from the second one\n")
	server := NewServer(Config{
		Dir: filepath.Join(dir, "containers"), PodIP: "127.0.0.1", ForcedEnv: map[string]string{"FORCED": "yes"},
		Images: images, Clock: clock.RealClock{},
	})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, "sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	f := &fixture{t: t, runtime: runtimeapi.NewRuntimeServiceClient(conn), images: runtimeapi.NewImageServiceClient(conn), logs: t.TempDir()}
	response, err := f.runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Uid: "uid", Namespace: "default"}, Hostname: "pod", LogDirectory: f.logs,
		Labels: map[string]string{"app": "test"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	f.sandbox = response.PodSandboxId
	return f
}

// addImage writes the program of an image.
func addImage(t *testing.T, dir, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// start creates and starts a container.
func (f *fixture) start(config *runtimeapi.ContainerConfig) (string, error) {
	f.t.Helper()
	config.Metadata, config.LogPath = &runtimeapi.ContainerMetadata{Name: "main"}, "main.log"
	if config.Image == nil {
		config.Image = &runtimeapi.ImageSpec{Image: "busybox"}
	}
	created, err := f.runtime.CreateContainer(f.t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: f.sandbox, Config: config})
	if err != nil {
		f.t.Fatal(err)
	}
	_, err = f.runtime.StartContainer(f.t.Context(), &runtimeapi.StartContainerRequest{ContainerId: created.ContainerId})
	return created.ContainerId, err
}

// run starts a shell script.
func (f *fixture) run(script string) string {
	f.t.Helper()
	id, err := f.start(&runtimeapi.ContainerConfig{Command: []string{"sh", "-c"}, Args: []string{script}})
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}

func (f *fixture) status(id string) *runtimeapi.ContainerStatus {
	f.t.Helper()
	response, err := f.runtime.ContainerStatus(f.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		f.t.Fatal(err)
	}
	return response.Status
}

// ended waits for the end of a container.
func (f *fixture) ended(id string) *runtimeapi.ContainerStatus {
	f.t.Helper()
	var st *runtimeapi.ContainerStatus
	labtest.For(f.t, "the container ends", func() bool {
		st = f.status(id)
		return st.State == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	return st
}

// log returns the log, without the times.
func (f *fixture) log() string {
	f.t.Helper()
	data, err := os.ReadFile(filepath.Join(f.logs, "main.log"))
	if err != nil {
		f.t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z `).ReplaceAllString(string(data), "")
}

func TestLifeCycleOfAContainer(t *testing.T) {
	f := newFixture(t)
	id := f.run("echo one; echo two >&2; echo $FORCED; exit 3")
	st := f.ended(id)
	if st.ExitCode != 3 || st.Reason != "Error" || st.StartedAt < st.CreatedAt || st.FinishedAt < st.StartedAt {
		t.Errorf("status: %v", st)
	}
	for _, line := range []string{"stdout F one\n", "stderr F two\n", "stdout F yes\n"} {
		if !strings.Contains(f.log(), line) {
			t.Errorf("log %q, want %q in it", f.log(), line)
		}
	}
	if _, err := f.runtime.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); err == nil {
		t.Error("a container was started twice")
	}
	if _, err := f.runtime.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	_, err := f.runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if status.Code(err) != codes.NotFound {
		t.Errorf("status of a removed container: %v, want NotFound", err)
	}
}

func TestStop(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		grace  int64 // in seconds
		code   int32
	}{
		"exits":           {"trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done", int64(labtest.Standstill.Seconds()), 5},
		"ignores SIGTERM": {"trap '' TERM; echo up; while :; do sleep 0.01; done", 1, 137},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			id := f.run(test.script)
			labtest.For(t, "it has written to its log", func() bool { return f.log() != "" })
			if _, err := f.runtime.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: test.grace}); err != nil {
				t.Fatal(err)
			}
			if st := f.status(id); st.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.ExitCode != test.code {
				t.Errorf("state %v, exit code %d; want it ended with %d", st.State, st.ExitCode, test.code)
			}
		})
	}
}

func TestEndOfAPod(t *testing.T) {
	f := newFixture(t)
	id := f.run("trap '' TERM; while :; do sleep 0.01; done")
	if _, err := f.runtime.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: f.sandbox}); err != nil {
		t.Fatal(err)
	}
	if st := f.status(id); st.State != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Errorf("a container of a stopped pod: %v", st.State)
	}
	if _, err := f.runtime.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: f.sandbox}); err != nil {
		t.Fatal(err)
	}
	list, err := f.runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil || len(list.Containers) != 0 {
		t.Errorf("containers of a removed pod: %v, %v", list, err)
	}
	_, err = f.runtime.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: f.sandbox})
	if status.Code(err) != codes.NotFound {
		t.Errorf("status of a removed pod: %v, want NotFound", err)
	}
}

func TestExecSync(t *testing.T) {
	f := newFixture(t)
	id := f.run("exec sleep 1000")
	exec := func(timeout int64, cmd ...string) (*runtimeapi.ExecSyncResponse, error) {
		return f.runtime.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: timeout})
	}
	response, err := exec(0, "sh", "-c", "echo out; echo err >&2; exit 2")
	if err != nil || string(response.Stdout) != "out\n" || string(response.Stderr) != "err\n" || response.ExitCode != 2 {
		t.Errorf("response %v, %v", response, err)
	}
	if response, err := exec(0, "no-such-program"); err != nil || response.ExitCode != 127 {
		t.Errorf("unknown program: %v, %v", response, err)
	}
	if _, err := exec(1, "sleep", "1000"); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a command that takes too long: %v", err)
	}
}

func TestReopenLog(t *testing.T) {
	f := newFixture(t)
	id := f.run("echo before; while ! test -e " + f.logs + "/go; do sleep 0.01; done; echo after")
	labtest.For(t, "it has written to its log", func() bool { return f.log() != "" })
	// The container sees an overlay of the machine's files; later writes there need not be visible to
	// it.
	if err := os.Rename(filepath.Join(f.logs, "main.log"), filepath.Join(f.logs, "old.log")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.runtime.ReopenContainerLog(t.Context(), &runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.runtime.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{
		ContainerId: id, Cmd: []string{"sh", "-c", "mkdir -p " + f.logs + "; touch " + f.logs + "/go"},
	}); err != nil {
		t.Fatal(err)
	}
	f.ended(id)
	if got := f.log(); got != "stdout F after\n" {
		t.Errorf("new log: %q", got)
	}
}

func TestLists(t *testing.T) {
	f := newFixture(t)
	id := f.run("exec sleep 1000")
	for name, test := range map[string]struct {
		filter *runtimeapi.ContainerFilter
		want   int
	}{
		"all":           {nil, 1},
		"by ID":         {&runtimeapi.ContainerFilter{Id: id}, 1},
		"other ID":      {&runtimeapi.ContainerFilter{Id: "other"}, 0},
		"by sandbox":    {&runtimeapi.ContainerFilter{PodSandboxId: f.sandbox}, 1},
		"other sandbox": {&runtimeapi.ContainerFilter{PodSandboxId: "other"}, 0},
		"running": {
			&runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}, 1,
		},
		"exited": {
			&runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED}}, 0,
		},
		"another's mark": {&runtimeapi.ContainerFilter{LabelSelector: map[string]string{"app": "test"}}, 0},
	} {
		list, err := f.runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: test.filter})
		if err != nil || len(list.Containers) != test.want {
			t.Errorf("%s: %v, %v; want %d", name, list, err, test.want)
		}
	}
	for name, test := range map[string]struct {
		filter *runtimeapi.PodSandboxFilter
		want   int
	}{
		"all":      {nil, 1},
		"other ID": {&runtimeapi.PodSandboxFilter{Id: "other"}, 0},
		"ready": {
			&runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}}, 1,
		},
		"by label":    {&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"app": "test"}}, 1},
		"other label": {&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"app": "other"}}, 0},
	} {
		list, err := f.runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: test.filter})
		if err != nil || len(list.Items) != test.want {
			t.Errorf("%s: %v, %v; want %d", name, list, err, test.want)
		}
	}
}

func TestImagesAreNames(t *testing.T) {
	f := newFixture(t)
	spec := &runtimeapi.ImageSpec{Image: "registry.example.com/team/hello:v1"}
	before, err := f.images.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: spec})
	if err != nil || before.Image != nil {
		t.Errorf("before it is pulled: %v, %v", before, err)
	}
	if _, err := f.images.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: spec}); err != nil {
		t.Fatal(err)
	}
	after, err := f.images.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: spec})
	if err != nil || after.Image == nil {
		t.Errorf("after it is pulled: %v, %v", after, err)
	}
	if _, err := f.start(&runtimeapi.ContainerConfig{
		Image: &runtimeapi.ImageSpec{Image: "mystery"},
	}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an image without a command: %v", err)
	}
}

// The program of an image is chosen by its tag, and a container sees nothing else of it.
func TestPrograms(t *testing.T) {
	for reference, want := range map[string]string{
		"hello":                              "stdout F hello from /hello a\n",
		"registry.example.com/team/hello:v1": "stdout F hello from /hello a\n",
		"registry.example.com/hello:v2@sha256:12": "stdout F hello from the second one\n",
	} {
		t.Run(reference, func(t *testing.T) {
			f := newFixture(t)
			id, err := f.start(&runtimeapi.ContainerConfig{
				Image: &runtimeapi.ImageSpec{Image: reference}, Args: []string{"a"},
				Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{ReadonlyRootfs: true}},
			})
			if err != nil {
				t.Fatal(err)
			}
			f.ended(id)
			if got := f.log(); got != want {
				t.Errorf("log: %q, want %q", got, want)
			}
		})
	}
}

func TestCommand(t *testing.T) {
	images := t.TempDir()
	addImage(t, images, "mine", "")
	addImage(t, images, "other:v2", "")
	s := NewServer(Config{Images: images})
	for name, test := range map[string]struct {
		image         string
		command, args []string
		want          []string
	}{
		"its own":             {"mine", []string{"a"}, []string{"b"}, []string{"a", "b"}},
		"of the image":        {"reg:5000/x/mine:v1@sha256:12", nil, nil, []string{"/mine"}},
		"with arguments":      {"mine", nil, []string{"a"}, []string{"/mine", "a"}},
		"of the tag":          {"x/other:v2", nil, nil, []string{"/other"}},
		"another tag":         {"x/other:v1", nil, nil, nil},
		"no name":             {"", nil, nil, nil},
		"arguments only":      {"busybox", nil, []string{"sleep", "1"}, []string{"sleep", "1"}},
		"built in":            {"registry.k8s.io/pause:3.10", nil, nil, []string{"sleep", "infinity"}},
		"built in, no prefix": {"alpine", nil, nil, []string{"/bin/sh"}},
		"unknown":             {"mystery", nil, nil, nil},
	} {
		config := &runtimeapi.ContainerConfig{
			Image: &runtimeapi.ImageSpec{Image: "sha256:12", UserSpecifiedImage: test.image}, Command: test.command, Args: test.args,
		}
		program, _ := s.program(image(config.Image))
		got, err := command(config, program)
		if diff := cmp.Diff(test.want, got); diff != "" || (err == nil) != (test.want != nil) {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestLongAndUnfinishedLines(t *testing.T) {
	l := &logFile{path: filepath.Join(t.TempDir(), "log"), clock: clock.RealClock{}}
	if err := l.open(); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 16<<10)
	l.copy("stdout", strings.NewReader(long+"yz\n\nend"))
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(l.path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(data)) {
		_, rest, _ := strings.Cut(line, " ")
		got = append(got, rest)
	}
	want := []string{"stdout P " + long + "\n", "stdout F yz\n", "stdout F \n", "stdout P end\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}
