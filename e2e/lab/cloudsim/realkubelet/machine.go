package realkubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
)

// dirVariable is in the environment of all processes of a VM, and names its folder.
const dirVariable = "CLOUDSIM_VM_DIR"

// The files in a VM's folder.
const (
	bootstrapFile = "bootstrap.kubeconfig"
	clientCAFile  = "client-ca.crt"
	userDataFile  = "user-data"
	consoleFile   = "console.log"
	// rebootFile is there when a VM that has ended has to be switched on again.
	rebootFile = "reboot"
	// attachedFolder has an empty file for each volume that is attached to the VM, called by its ID.
	attachedFolder = "attached"
)

// machine is a VM that is on. The fields of the first group are guarded by Host.mu; the others are
// only used by the steps of this VM, which never overlap.
type machine struct {
	off      bool
	grace    time.Duration
	endGrace context.CancelFunc // ends a graceful shutdown; nil when there is none
	health   guest.Health
	volumes  []string

	guest.VM
	dir      string
	main     supervise.ID
	started  bool
	dead     bool
	frozen   bool
	freezing bool // the last pass of freeze has signalled a process
	plugged  bool
	sees     []string // the volumes that were plugged in last
	said     string
}

func (m *machine) file(name string) string { return filepath.Join(m.dir, name) }

// start starts the VM's processes, or finds those that an earlier run of the cloud has started.
func (h *Host) start(ctx context.Context, m *machine) error {
	if m.Resumed {
		if found, err := m.find(); found || err != nil {
			m.started = found
			return err
		}
		if _, err := os.Stat(m.file(consoleFile)); err == nil {
			m.started = true // And has ended meanwhile: main is no process.
			return nil
		}
	}
	if err := h.furnish(ctx, m); err != nil {
		return err
	}
	args, err := h.args(m)
	if err != nil {
		return err
	}
	if m.main, err = h.launch(m, args); err != nil {
		return err
	}
	m.started = true
	h.say(m, fmt.Sprintf("switched on as process %d", m.main.PID))
	return nil
}

// find finds the processes that an earlier run of the cloud has started for this VM. The oldest is
// the VM itself.
func (m *machine) find() (bool, error) {
	all, err := supervise.WithEnv(dirVariable, m.dir)
	if err != nil {
		return false, fmt.Errorf("look for the VM's processes: %w", err)
	}
	if len(all) == 0 {
		return false, nil
	}
	m.main = slices.MinFunc(all, func(a, b supervise.ID) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.PID, b.PID))
	})
	m.frozen = m.main.State().Stopped()
	return true, nil
}

// freeze stops the VM's processes, or lets them continue. It is repeated until a pass finds nothing
// to do, and as long as the VM is frozen: a process that starts another one during a pass is
// stopped, and the other one may have been missed, as has one whose program was being replaced,
// when it has no environment.
func (m *machine) freeze(frozen bool) error {
	signal := syscall.SIGCONT
	if frozen {
		signal = syscall.SIGSTOP
	}
	all, err := supervise.WithEnv(dirVariable, m.dir)
	if err != nil {
		return fmt.Errorf("look for the VM's processes: %w", err)
	}
	m.frozen, m.freezing = frozen, false
	for _, id := range all {
		if id.State().Stopped() == frozen {
			continue
		}
		m.freezing = true
		if err := id.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("freeze the VM or let it continue: %w", err)
		}
	}
	return nil
}

// furnish writes the files with which the VM boots into its folder.
func (h *Host) furnish(ctx context.Context, m *machine) error {
	if err := os.MkdirAll(m.file(attachedFolder), 0o700); err != nil {
		return fmt.Errorf("create the VM's folder: %w", err)
	}
	// This is where the API server publishes who may call a kubelet.
	const namespace, name, key = "kube-system", "extension-apiserver-authentication", "client-ca-file"
	published, err := h.cfg.Client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the cluster's authority for clients: %w", err)
	}
	if err := os.WriteFile(m.file(clientCAFile), []byte(published.Data[key]), 0o600); err != nil {
		return fmt.Errorf("write the authority for clients: %w", err)
	}
	if err := os.WriteFile(m.file(userDataFile), m.UserData, 0o600); err != nil {
		return fmt.Errorf("write the user data: %w", err)
	}
	ca, err := serverCA(h.cfg.Cluster.CAData, h.cfg.Cluster.CAFile)
	if err != nil {
		return err
	}
	config := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"cluster": {Server: h.cfg.Cluster.Host, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"bootstrap": {Token: m.BootstrapToken}},
		Contexts:       map[string]*clientcmdapi.Context{"bootstrap": {Cluster: "cluster", AuthInfo: "bootstrap"}},
		CurrentContext: "bootstrap",
	}
	if err := clientcmd.WriteToFile(config, m.file(bootstrapFile)); err != nil {
		return fmt.Errorf("write the bootstrap kubeconfig: %w", err)
	}
	return nil
}

// serverCA returns the authority behind the API server.
func serverCA(data []byte, file string) ([]byte, error) {
	if len(data) > 0 || file == "" {
		return data, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's authority: %w", err)
	}
	return data, nil
}

// args are the flags of the VM's command.
func (h *Host) args(m *machine) ([]string, error) {
	ports, err := freePorts(m.IP)
	if err != nil {
		return nil, err
	}
	serverPort := h.server.Port()
	if serverPort == "" {
		serverPort = "443"
	}
	return []string{
		"--dir", m.dir,
		"--name", m.Name,
		"--provider-id", m.ProviderID,
		"--node-ip", m.IP,
		"--port", ports[0],
		"--health-port", ports[1],
		"--cpu", strconv.FormatInt(m.CPU, 10),
		"--memory-mib", strconv.FormatInt(m.MemoryMiB, 10),
		"--bootstrap-kubeconfig", m.file(bootstrapFile),
		"--client-ca-file", m.file(clientCAFile),
		"--user-data", m.file(userDataFile),
		"--volumes", h.cfg.Volumes,
		"--attached", m.file(attachedFolder),
		// What a Service network would do for pods: the address of the API server.
		"--forced-env", "KUBERNETES_SERVICE_HOST=" + h.server.Hostname() + ",KUBERNETES_SERVICE_PORT=" + serverPort,
	}, nil
}

// freePorts returns ports on which no process listens. Another process may take one before the
// kubelet does; then the kubelet ends, and with it the VM, or it starts again.
func freePorts(ip string) (ports [2]string, err error) {
	for i := range ports {
		listener, err := net.Listen("tcp", net.JoinHostPort(ip, "0")) //nolint:noctx // nothing to cancel
		if err != nil {
			return ports, fmt.Errorf("find ports for the kubelet: %w", err)
		}
		defer listener.Close()
		if _, ports[i], err = net.SplitHostPort(listener.Addr().String()); err != nil {
			return ports, fmt.Errorf("find ports for the kubelet: %w", err)
		}
	}
	return ports, nil
}

// launch starts the VM's command, in a session of its own so that a signal to this process does not
// reach the VM.
func (h *Host) launch(m *machine, args []string) (supervise.ID, error) {
	console, err := os.OpenFile(m.file(consoleFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return supervise.ID{}, fmt.Errorf("open the VM's console: %w", err)
	}
	defer console.Close()
	cmd := exec.Command(h.cfg.Command[0], slices.Concat(h.cfg.Command[1:], args)...) //nolint:noctx // it outlives us
	cmd.Dir = m.dir
	cmd.Env = append(os.Environ(), dirVariable+"="+m.dir)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return supervise.ID{}, fmt.Errorf("switch the VM on: %w", err)
	}
	id, err := supervise.Identify(cmd.Process.Pid)
	go func() { _ = cmd.Wait() }() // Reap it; its end is found by polling.
	if errors.Is(err, fs.ErrNotExist) {
		return supervise.ID{}, nil // Gone already: no process is no process.
	}
	return id, err
}
