package cri

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/mount-utils"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// machine is a machine with a driver, seen by its kubelet.
type machine struct {
	*testing.T

	config VolumesConfig
	node   spec.NodeClient
}

// newMachine starts the driver of a machine, and finds it as a kubelet does.
func newMachine(t *testing.T, name, volumes string) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("/run", name) //nolint:usetesting // A socket's path has to be short.
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{T: t, config: VolumesConfig{
		KubeletDir: filepath.Join(dir, "kubelet"), NodeID: name, Volumes: volumes, Attached: filepath.Join(dir, "attached"),
		Mounter: mount.NewWithoutSystemd(""), Log: slog.New(slog.DiscardHandler),
	}}
	if err := os.Mkdir(m.config.Attached, 0o700); err != nil {
		t.Fatal(err)
	}
	m.serve()
	return m
}

// serve starts the driver, and connects to it.
func (m *machine) serve() {
	m.Helper()
	ctx, cancel := context.WithCancel(m.Context())
	ended := make(chan error, 1)
	go func() { ended <- ServeVolumes(ctx, m.config) }()
	m.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			m.Errorf("Serve: %v", err)
		}
	})
	found := filepath.Join(m.config.KubeletDir, "plugins_registry", cloudapi.CSIDriver+"-reg.sock")
	registration := registrationv1.NewRegistrationClient(m.dial(found))
	info, err := registration.GetInfo(m.Context(), &registrationv1.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil || info.Type != registrationv1.CSIPlugin || info.Name != cloudapi.CSIDriver || len(info.SupportedVersions) == 0 {
		m.Fatalf("registration: %+v, %v", info, err)
	}
	if _, err := registration.NotifyRegistrationStatus(m.Context(), &registrationv1.RegistrationStatus{PluginRegistered: true}); err != nil {
		m.Fatal(err)
	}
	m.node = spec.NewNodeClient(m.dial(info.Endpoint))
}

func (m *machine) dial(socket string) *grpc.ClientConn {
	m.Helper()
	// It may not listen yet.
	eager := grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1, MaxDelay: time.Millisecond}, MinConnectTimeout: time.Minute,
	})
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), eager)
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (m *machine) staging() string {
	return filepath.Join(m.config.KubeletDir, "staged", "globalmount")
}

func (m *machine) target(pod string) string {
	return filepath.Join(m.config.KubeletDir, "pods", pod, "mount")
}

var fileSystem = &spec.VolumeCapability{AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}}}

func (m *machine) stage(volume string) codes.Code {
	_, err := m.node.NodeStageVolume(m.Context(), &spec.NodeStageVolumeRequest{
		VolumeId: volume, StagingTargetPath: m.staging(), VolumeCapability: fileSystem,
	})
	return status.Code(err)
}

func (m *machine) publish(volume, pod string, readOnly bool) codes.Code {
	_, err := m.node.NodePublishVolume(m.Context(), &spec.NodePublishVolumeRequest{
		VolumeId: volume, StagingTargetPath: m.staging(), TargetPath: m.target(pod), VolumeCapability: fileSystem, Readonly: readOnly,
	})
	return status.Code(err)
}

func (m *machine) unpublish(volume, pod string) codes.Code {
	_, err := m.node.NodeUnpublishVolume(m.Context(), &spec.NodeUnpublishVolumeRequest{VolumeId: volume, TargetPath: m.target(pod)})
	return status.Code(err)
}

func (m *machine) unstage(volume string) codes.Code {
	_, err := m.node.NodeUnstageVolume(m.Context(), &spec.NodeUnstageVolumeRequest{VolumeId: volume, StagingTargetPath: m.staging()})
	return status.Code(err)
}

// attach does what the cloud does.
func (m *machine) attach(volume string, attached bool) {
	m.Helper()
	file := filepath.Join(m.config.Attached, volume)
	err := os.WriteFile(file, nil, 0o600)
	if !attached {
		err = os.Remove(file)
	}
	if err != nil {
		m.Fatal(err)
	}
}

// expect checks the results of calls that are made twice: repeating a call changes nothing.
func (m *machine) expect(what string, want codes.Code, call func() codes.Code) {
	m.Helper()
	for _, time := range []string{"", " again"} {
		if got := call(); got != want {
			m.Errorf("%s%s: %v, want %v", what, time, got, want)
		}
	}
}

// A volume moves from one machine to another with what was written to it.
func TestAVolumeMoves(t *testing.T) {
	volumes, err := os.MkdirTemp("/run", "volumes") //nolint:usetesting // as above
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(volumes, "vol-1"), 0o755); err != nil {
		t.Fatal(err)
	}
	a, b := newMachine(t, "i-a", volumes), newMachine(t, "i-b", volumes)
	if info, err := a.node.NodeGetInfo(t.Context(), &spec.NodeGetInfoRequest{}); err != nil || info.NodeId != "i-a" {
		t.Errorf("node: %v, %v", info, err)
	}
	capabilities, err := a.node.NodeGetCapabilities(t.Context(), &spec.NodeGetCapabilitiesRequest{})
	if err != nil || len(capabilities.Capabilities) != 1 ||
		capabilities.Capabilities[0].GetRpc().Type != spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME {
		t.Errorf("capabilities: %v, %v", capabilities, err)
	}

	a.expect("stage before it is attached", codes.FailedPrecondition, func() codes.Code { return a.stage("vol-1") })
	a.attach("vol-1", true)
	if err := os.MkdirAll(a.staging(), 0o750); err != nil { // as kubelets do
		t.Fatal(err)
	}
	a.expect("publish before it is staged", codes.FailedPrecondition, func() codes.Code { return a.publish("vol-1", "writer", false) })
	a.expect("stage", codes.OK, func() codes.Code { return a.stage("vol-1") })
	a.expect("publish", codes.OK, func() codes.Code { return a.publish("vol-1", "writer", false) })
	a.expect("publish to read", codes.OK, func() codes.Code { return a.publish("vol-1", "reader", true) })
	if err := os.WriteFile(filepath.Join(a.target("writer"), "file"), []byte("data"), 0o600); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(a.target("reader"), "file"), []byte("nonsense"), 0o600); err == nil {
		t.Error("a volume that is there to read can be written")
	}
	b.expect("stage where it is not attached", codes.FailedPrecondition, func() codes.Code { return b.stage("vol-1") })

	for _, pod := range []string{"writer", "reader"} {
		a.expect("unpublish", codes.OK, func() codes.Code { return a.unpublish("vol-1", pod) })
	}
	a.expect("unstage", codes.OK, func() codes.Code { return a.unstage("vol-1") })
	for _, path := range []string{a.target("writer"), a.staging()} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s: %v, want it gone", path, err)
		}
	}
	a.attach("vol-1", false)
	b.attach("vol-1", true)
	a.expect("stage where it was attached", codes.FailedPrecondition, func() codes.Code { return a.stage("vol-1") })
	b.expect("stage", codes.OK, func() codes.Code { return b.stage("vol-1") })
	b.expect("publish", codes.OK, func() codes.Code { return b.publish("vol-1", "next", false) })
	if data, err := os.ReadFile(filepath.Join(b.target("next"), "file")); err != nil || string(data) != "data" {
		t.Errorf("on the next machine: %q, %v; want data", data, err)
	}
}

// A machine that boots again has the sockets of its last run on its disk.
func TestRebootWithOldSockets(t *testing.T) {
	var config VolumesConfig
	t.Run("first", func(t *testing.T) { config = newMachine(t, "i-a", t.TempDir()).config })
	for _, path := range []string{config.endpoint(), config.registry()} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	(&machine{T: t, config: config}).serve()
}

func TestRefusals(t *testing.T) {
	m := newMachine(t, "i-a", t.TempDir())
	for name, r := range map[string]*spec.NodeStageVolumeRequest{
		"no volume":      {StagingTargetPath: "/run/x", VolumeCapability: fileSystem},
		"path as volume": {VolumeId: "../i-a", StagingTargetPath: "/run/x", VolumeCapability: fileSystem},
		"dots as volume": {VolumeId: "..", StagingTargetPath: "/run/x", VolumeCapability: fileSystem},
		"no path":        {VolumeId: "vol-1", VolumeCapability: fileSystem},
		"block": {VolumeId: "vol-1", StagingTargetPath: "/run/x", VolumeCapability: &spec.VolumeCapability{
			AccessType: &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}},
		}},
	} {
		if _, err := m.node.NodeStageVolume(t.Context(), r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, want InvalidArgument", name, err)
		}
	}
	if _, err := m.node.NodeUnpublishVolume(t.Context(),
		&spec.NodeUnpublishVolumeRequest{VolumeId: "vol-1"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("unpublish without a path: %v, want InvalidArgument", err)
	}
}
