package harness

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	machineclientset "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned"
	fleetclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/fleet/v1alpha1"
)

// Fleet is the name of the lab's first replica.
const Fleet = "fleet-0"

// DefaultSlots is the number of slots of a fleet whose flags set no other.
const DefaultSlots = 256

// Options describe a lab.
type Options struct {
	// Dir is the lab's folder.
	Dir string
	// Clusters is 1 or 2; 0 means 1. Above 2, or with Light, it is the number of target clusters
	// that have a real API server and a namespace for each.
	Clusters int
	// Light is the number of target clusters that have a light API server.
	Light int
	// Replicas of the fleet; 0 means 1.
	Replicas int
	// Slots of the fleet; 0 means DefaultSlots.
	Slots int
	// NoFleet installs nothing of the fleet.
	NoFleet bool
	// Nodes of the control cluster that belong to no machine, with real kubelets.
	Nodes int
	// MachineConfiguration installs its kinds in the target cluster and runs machine-config-daemon
	// in VMs with a real kubelet, with DaemonFlags.
	MachineConfiguration bool
	DaemonFlags          string
	// NoRestart disables the restart of a replica's process that ends by itself; else it is
	// restarted as by a kubelet.
	NoRestart bool
	// Tracing adds a Jaeger; bin/jaeger has to be built.
	Tracing bool
	// TraceRatio of the roots whose machines are traced; 0 means all.
	TraceRatio float64
	// CloudsimFlags and FleetFlags are passed on. $(NUMBER) in FleetFlags is the number of the
	// replica.
	CloudsimFlags, FleetFlags string
	// CloudEndpoints are those of further clouds that Secrets may name.
	CloudEndpoints []string
	// Clouds are those besides the simulated one, as `lab up --clouds` has them.
	Clouds string
	// Drivers are those in separate processes, as `lab up --drivers` has them.
	Drivers string
	// Refused is part of the message of an admission policy that rejects requests of replicas on
	// behalf of tenants. Begin expects that.
	Refused string
	// Output gets the output of `lab up`; nil means that it is shown only when it fails.
	Output io.Writer
}

// Lab is a running lab.
type Lab struct {
	Dir string
	// Control is the cluster with the Machine objects, Target the one that the VMs join.
	Control, Target kubernetes.Interface
	// Machines is the control cluster's machine API.
	Machines machineclientset.Interface
	// Configs is the target cluster's API of machine configuration.
	Configs fleetclient.FleetV1alpha1Interface
	// Config and TargetConfig are the administrator's access to the control cluster and to the
	// target cluster.
	Config, TargetConfig *rest.Config
	Cloud                *Cloud
	// SlotCount is the number of slots of the fleet. Open does not know it, and assumes
	// DefaultSlots.
	SlotCount int

	launcher      string // its URL
	launcherEnded func() <-chan struct{}
}

// Repository returns the folder of the repository that the working folder is in.
func Repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find the repository: run this inside it")
		}
		dir = parent
	}
}

// Bin returns the folder of the binaries: BIN, or bin in the repository.
func Bin() (string, error) {
	if dir := os.Getenv("BIN"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := Repository()
	return filepath.Join(dir, "bin"), err
}

// run runs bin/lab.
func run(ctx context.Context, output io.Writer, args ...string) error {
	bin, err := Bin()
	if err != nil {
		return err
	}
	var printed strings.Builder
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "lab"), args...)
	cmd.Stdout = io.Writer(&printed)
	if output != nil {
		cmd.Stdout = io.MultiWriter(output, &printed)
	}
	cmd.Stderr = cmd.Stdout
	// On an interrupt `lab up` stops what it has started. Only this process sends it: a Ctrl-C,
	// which a terminal sends to a whole group of processes, would else interrupt `lab down`.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = Standstill
	switch err := cmd.Run(); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("lab %s: %w; `make build` builds it", args[0], err)
	case err != nil:
		return fmt.Errorf("lab %s: %w\n%s", args[0], err, printed.String())
	}
	return nil
}

// NoKubelets returns why real kubelets cannot run on this computer; "" if they can.
func NoKubelets(ctx context.Context) string {
	if err := run(ctx, nil, "vm", "--check"); err != nil {
		return "real kubelets cannot run here: " + err.Error()
	}
	return ""
}

// Up starts a lab and connects to it.
func Up(ctx context.Context, o Options) (*Lab, error) {
	replicas := max(o.Replicas, 1)
	if o.NoFleet {
		replicas = 0
	}
	if o.Slots > 0 {
		o.FleetFlags = strings.TrimSpace(fmt.Sprintf("--slots=%d %s", o.Slots, o.FleetFlags))
	}
	args := []string{
		"up", "--dir", o.Dir, "--clusters", strconv.Itoa(max(o.Clusters, 1)), "--light", strconv.Itoa(o.Light), "--replicas",
		strconv.Itoa(replicas), "--nodes", strconv.Itoa(o.Nodes), "--cloudsim-flags", o.CloudsimFlags, "--fleet-flags", o.FleetFlags,
		"--tracing=" + strconv.FormatBool(o.Tracing), "--cloud-endpoints", strings.Join(o.CloudEndpoints, ","), "--clouds", o.Clouds, "--drivers",
		o.Drivers,
	}
	if o.MachineConfiguration {
		args = append(args, "--machine-configuration", "--daemon-flags", o.DaemonFlags)
	}
	if o.TraceRatio > 0 {
		args = append(args, fmt.Sprintf("--trace-ratio=%g", o.TraceRatio))
	}
	if o.NoRestart {
		args = append(args, "--restart=never")
	}
	if err := run(ctx, o.Output, args...); err != nil {
		return nil, err
	}
	lab, err := Open(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	lab.SlotCount = cmp.Or(o.Slots, DefaultSlots)
	return lab, nil
}

// Open connects to a lab that runs.
func Open(ctx context.Context, dir string) (*Lab, error) {
	lab := &Lab{Dir: dir, SlotCount: DefaultSlots}
	endpoints, err := lab.endpoints()
	if err != nil {
		return nil, fmt.Errorf("open lab %s, see `make lab-up`: %w", dir, err)
	}
	lab.launcher = endpoints["launcher"]
	lab.launcherEnded = sync.OnceValue(lab.observeLauncher)
	if err := send(ctx, http.MethodGet, lab.launcher+"/v1/processes", nil, nil); err != nil {
		return nil, fmt.Errorf("lab %s does not run, see `make lab-up`: %w", dir, err)
	}
	if lab.Config, err = config(dir, "admin.kubeconfig"); err != nil {
		return nil, err
	}
	if lab.TargetConfig, err = config(dir, "target.kubeconfig"); err != nil {
		return nil, err
	}
	lab.Cloud = &Cloud{endpoint: endpoints["cloudsim"], log: filepath.Join(dir, "cloudsim-calls.jsonl")}
	var errs [4]error
	lab.Control, errs[0] = kubernetes.NewForConfig(lab.Config)
	lab.Target, errs[1] = kubernetes.NewForConfig(lab.TargetConfig)
	lab.Machines, errs[2] = machineclientset.NewForConfig(lab.Config)
	lab.Configs, errs[3] = fleetclient.NewForConfig(lab.TargetConfig)
	return lab, errors.Join(errs[:]...)
}

func config(dir, file string) (*rest.Config, error) {
	c, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, file))
	if err != nil {
		return nil, fmt.Errorf("lab %s: %w", dir, err)
	}
	c.QPS = -1 // no limit
	return c, nil
}

// Down stops the lab, also after ctx has ended.
func (l *Lab) Down(ctx context.Context) error { return Down(ctx, l.Dir) }

// Down stops all processes of the lab in a folder, also of an incomplete one, and also after ctx
// has ended.
func Down(ctx context.Context, dir string) error {
	return run(context.WithoutCancel(ctx), nil, "down", "--dir", dir)
}

// Pids returns the processes of the lab that live, by name, as pids.json has them.
func (l *Lab) Pids() (map[string]int, error) {
	text, err := os.ReadFile(filepath.Join(l.Dir, "pids.json"))
	if err != nil {
		return nil, fmt.Errorf("processes of lab %s: %w", l.Dir, err)
	}
	var pids map[string]int
	if err := json.Unmarshal(text, &pids); err != nil {
		return nil, fmt.Errorf("read pids.json of lab %s: want one flat object, name to process number: %w", l.Dir, err)
	}
	return pids, nil
}

// Kubectl runs kubectl against the control cluster and returns what it prints.
func (l *Lab) Kubectl(ctx context.Context, args ...string) (string, error) {
	bin, err := Bin()
	if err != nil {
		return "", err
	}
	var printed, failures strings.Builder
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(l.Dir, "admin.kubeconfig"))
	cmd.Stdout, cmd.Stderr = &printed, &failures
	if err := cmd.Run(); err != nil {
		return printed.String(), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, failures.String())
	}
	return printed.String(), nil
}

// endpoints are the URLs of the processes, by name. They change with the fleet.
func (l *Lab) endpoints() (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(l.Dir, "endpoints.json"))
	if err != nil {
		return nil, err // It names the path.
	}
	var endpoints map[string]string
	if err := json.Unmarshal(text, &endpoints); err != nil {
		return nil, fmt.Errorf("read endpoints.json of lab %s: %w", l.Dir, err)
	}
	return endpoints, nil
}

// Endpoint returns the URL of a process, by name, as in endpoints.json; "" when there is none.
func (l *Lab) Endpoint(name string) string {
	endpoints, err := l.endpoints()
	if err != nil {
		return ""
	}
	return endpoints[name]
}
