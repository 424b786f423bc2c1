package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/configfiles"
	"k8s.io/kubernetes/pkg/util/filesystem"
	"k8s.io/kubernetes/pkg/util/oom"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cri"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/vm"
)

const (
	runtimeSocket = "/run/cri.sock"
	containersDir = "/run/containers"
)

// kubeletMain runs a kubelet in its machine, until SIGTERM.
func kubeletMain(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	machine, err := vm.ReadConfig(vm.ConfigPath)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", runtimeSocket)
	if err != nil {
		return fmt.Errorf("listening for the kubelet: %w", err)
	}
	config := cri.Config{Dir: containersDir, PodIP: machine.NodeIP, ForcedEnv: machine.ForcedEnv, Clock: clock.RealClock{}}
	if machine.Images != "" {
		config.Images = vm.ImagesDir
	}
	runtime := cri.NewServer(config)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return runtime.Serve(groupCtx, listener) })
	if machine.Volumes != "" {
		group.Go(func() error {
			return cri.ServeVolumes(groupCtx, cri.VolumesConfig{
				KubeletDir: vm.KubeletDir, NodeID: machine.InstanceID(), Volumes: vm.VolumesDir, Attached: vm.AttachedDir,
				Mounter: mount.NewWithoutSystemd(""), Log: slog.Default(),
			})
		})
	}
	group.Go(func() error { return runMachine(groupCtx, machine) })
	return group.Wait()
}

func runMachine(ctx context.Context, machine vm.Config) error {
	server, err := configure(ctx, machine)
	if err != nil {
		return err
	}
	bootID, err := os.ReadFile(vm.BootIDPath)
	if err != nil {
		return fmt.Errorf("reading the boot ID: %w", err)
	}
	deps, err := app.UnsecuredDependencies(ctx, server, utilfeature.DefaultFeatureGate)
	if err != nil {
		return fmt.Errorf("preparing the kubelet: %w", err)
	}
	replace(deps, machine, string(bytes.TrimSpace(bootID)))
	return app.Run(ctx, server, deps, utilfeature.DefaultFeatureGate)
}

// replace replaces the parts that would read or change the host.
func replace(deps *kubelet.Dependencies, machine vm.Config, bootID string) {
	deps.CAdvisorInterface = hardware{cores: machine.CPU, memory: uint64(machine.MemoryMiB) << 20, id: machine.ProviderID, bootID: bootID}
	deps.ContainerManager = cm.NewStubContainerManager()
	deps.OOMAdjuster = oom.NewFakeOOMAdjuster()
	// The host's systemd would mount on the host.
	deps.Mounter = mount.NewWithoutSystemd("")
	deps.Subpather = subpath.New(deps.Mounter)
}

// settings returns the kubelet's settings: those of the machine's configuration, or else the
// defaults.
func settings(ctx context.Context) (*kubeletconfig.KubeletConfiguration, error) {
	if _, err := os.Stat(vm.KubeletConfigPath); errors.Is(err, fs.ErrNotExist) {
		config, err := options.NewKubeletConfiguration()
		if err != nil {
			return nil, fmt.Errorf("the kubelet's defaults: %w", err)
		}
		return config, nil
	}
	loader, err := configfiles.NewFsLoader(&filesystem.DefaultFs{}, vm.KubeletConfigPath)
	if err != nil {
		return nil, fmt.Errorf("preparing to read %s: %w", vm.KubeletConfigPath, err)
	}
	config, err := loader.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("the machine's configuration of the kubelet: %w", err)
	}
	return config, nil
}

// configure writes the kubelet's configuration. What the lab depends on goes before the machine's
// settings.
func configure(ctx context.Context, machine vm.Config) (*options.KubeletServer, error) {
	flags := options.NewKubeletFlags()
	config, err := settings(ctx)
	if err != nil {
		return nil, err
	}
	flags.RootDirectory = vm.KubeletDir
	flags.CertDirectory = vm.KubeletDir + "/pki"
	flags.KubeConfig = vm.KubeletDir + "/kubeconfig"
	flags.BootstrapKubeconfig = vm.BootstrapKubeconfigPath
	flags.HostnameOverride = machine.Name
	flags.NodeLabels = machine.Labels
	// A kubelet does not report a loopback address; its cloud does.
	flags.CloudProvider = "external"

	config.ProviderID = machine.ProviderID
	config.Address, config.Port = machine.NodeIP, int32(machine.Port)
	config.ReadOnlyPort = 0
	config.HealthzBindAddress, config.HealthzPort = machine.NodeIP, int32(machine.HealthPort)
	config.Authentication.X509.ClientCAFile = vm.ClientCAPath
	config.Authentication.Anonymous.Enabled = false
	config.RotateCertificates = true
	config.ContainerRuntimeEndpoint = "unix://" + runtimeSocket
	config.VolumePluginDir = vm.KubeletDir + "/volume-plugins"
	config.PodLogsDir = vm.PodLogsDir
	// There is no DNS here. Without an address the kubelet logs an error for each pod.
	config.ResolverConfig, config.ClusterDNS, config.ClusterDomain = "", []string{"10.0.0.10"}, "cluster.local"
	config.SerializeImagePulls = false

	// There are no control groups, and no disk to measure.
	config.CgroupsPerQOS = false
	config.EnforceNodeAllocatable = nil
	config.FailCgroupV1, config.FailSwapOn = false, false
	config.LocalStorageCapacityIsolation = false
	config.EvictionHard = map[string]string{}

	config.NodeStatusUpdateFrequency.Duration = 5 * time.Second
	if err := validation.ValidateKubeletConfiguration(config, utilfeature.DefaultFeatureGate); err != nil {
		return nil, fmt.Errorf("the kubelet's configuration: %w", err)
	}
	return &options.KubeletServer{KubeletFlags: *flags, KubeletConfiguration: *config}, nil
}

func runKubelet([]string) int {
	if err := kubeletMain(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet:", err)
		return 1
	}
	return 0
}
