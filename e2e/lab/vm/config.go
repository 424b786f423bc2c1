package vm

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// Commands of the lab binary.
const (
	Command     = "vm"
	InitCommand = "vm-init"
)

// Paths inside of a machine.
const (
	// KubeletDir is the kubelet's folder.
	KubeletDir = "/var/lib/kubelet"
	// PodLogsDir has the logs of containers.
	PodLogsDir = "/var/log/pods"
	// BootstrapKubeconfigPath, ClientCAPath, ConfigPath and userDataPath are files that the cloud adds
	// to a machine.
	BootstrapKubeconfigPath = KubeletDir + "/bootstrap.kubeconfig"
	ClientCAPath            = KubeletDir + "/client-ca.crt"
	ConfigPath              = KubeletDir + "/machine.json"
	userDataPath            = KubeletDir + "/user-data"
	// userDataWrittenPath exists when the files of user data were written, and its lines are not run
	// again.
	userDataWrittenPath = KubeletDir + "/user-data-written"
	// VolumesDir has the contents of the cloud's volumes, AttachedDir a file for each of those that
	// are attached to the machine.
	VolumesDir  = "/run/cloud/volumes"
	AttachedDir = "/run/cloud/attached"
	// ImagesDir has the programs of images.
	ImagesDir = "/run/images"
	// RootDir is the root of the files that the machine's machine-config-daemon configures, a folder
	// of the machine's disk.
	RootDir = "/run/root"
	// KubeletConfigPath has settings of the kubelet, if a configuration contains it.
	KubeletConfigPath = RootDir + "/etc/kubernetes/kubelet.conf"
	// BootIDPath has the ID of this boot.
	BootIDPath = "/run/boot-id"
	// rebootPath exists when the machine has to be switched on again.
	rebootPath = KubeletDir + "/reboot"
)

// RebootFile is a file that a machine which is off has in Config.Dir if it has to be switched on
// again: a reboot was requested in it.
const RebootFile = "reboot"

// Config configures a machine.
type Config struct {
	// Dir is its disk. A machine that boots from a disk again is the same one: it already has its
	// certificate.
	Dir string `json:"dir"`
	// Name of the host and of the Node.
	Name string `json:"name"`
	// ProviderID becomes the Node's spec.providerID.
	ProviderID string `json:"providerID"`
	// NodeIP is the address on which the kubelet listens, and that of the pods. A loopback address is
	// allowed: the kubelet does not report addresses, its cloud does.
	NodeIP string `json:"nodeIP"`
	// Port of the kubelet's API.
	Port int `json:"port"`
	// HealthPort is the port of the kubelet's health, /healthz.
	HealthPort int `json:"healthPort"`
	// CPU and MemoryMiB are the Node's capacity. They limit nothing else.
	CPU       int   `json:"cpu"`
	MemoryMiB int64 `json:"memoryMiB"`
	// Labels of the Node.
	Labels map[string]string `json:"labels"`
	// ForcedEnv is put into the environment of each container, and overrides its own: the address of
	// the API server, which Kubernetes would otherwise set to that of a Service, which is not
	// reachable here.
	ForcedEnv map[string]string `json:"forcedEnv"`
	// Images is a folder outside of the machine with the programs of images. See package cri. It may
	// change while the machine runs.
	Images string `json:"images,omitempty"`

	// Daemon is the path outside of the machine of machine-config-daemon, which configures the files
	// below RootDir; without it none runs. DaemonFlags are added to its flags.
	Daemon      string   `json:"daemon,omitempty"`
	DaemonFlags []string `json:"daemonFlags,omitempty"`

	// Volumes and Attached are paths outside of the machine. Volumes has a folder for each volume of
	// the cloud, called by its ID, with its contents; Attached has a file for each volume that is
	// attached to this machine, called by its ID, and changes while the machine runs. Without them the
	// machine has no CSI driver.
	Volumes  string `json:"volumes,omitempty"`
	Attached string `json:"attached,omitempty"`

	// BootstrapKubeconfig, ClientCAFile and UserData are paths outside of the machine. UserData may be
	// "".
	BootstrapKubeconfig string `json:"-"`
	ClientCAFile        string `json:"-"`
	UserData            string `json:"-"`
}

// Bind declares the configuration as flags.
func (c *Config) Bind(flags *flag.FlagSet) {
	flags.StringVar(&c.Dir, "dir", "", "`folder` that is the machine's disk")
	flags.StringVar(&c.Name, "name", "", "`name` of the Node")
	flags.StringVar(&c.ProviderID, "provider-id", "", "provider `ID` of the Node")
	flags.StringVar(&c.NodeIP, "node-ip", "", "`address` on which the kubelet listens, and that of its pods")
	flags.IntVar(&c.Port, "port", 0, "`port` of the kubelet's API")
	flags.IntVar(&c.HealthPort, "health-port", 0, "`port` of the kubelet's health")
	flags.IntVar(&c.CPU, "cpu", 0, "`cores` of the Node")
	flags.Int64Var(&c.MemoryMiB, "memory-mib", 0, "memory of the Node, in `MiB`")
	flags.Func("labels", "labels of the Node, as in `k=v,k=v`", pairs(&c.Labels))
	flags.StringVar(&c.BootstrapKubeconfig, "bootstrap-kubeconfig", "", "`file` with which the kubelet requests a certificate")
	flags.StringVar(&c.ClientCAFile, "client-ca-file", "", "`file` with the authority of the clients of the kubelet's API")
	flags.StringVar(&c.UserData, "user-data", "", "`file` with the user data; a #cloud-config in it is carried out at the first boot")
	flags.StringVar(&c.Volumes, "volumes", "", "`folder` with the contents of all volumes of the cloud; goes with --attached")
	flags.StringVar(&c.Attached, "attached", "", "`folder` with a file for each volume that is attached to the machine")
	flags.Func("forced-env", "environment of all containers, as in `K=V,K=V`", pairs(&c.ForcedEnv))
	flags.StringVar(&c.Images, "images", "", "`folder` with the programs of images, files called NAME:TAG or NAME")
	flags.StringVar(&c.Daemon, "daemon", "", "`path` of machine-config-daemon; without it none runs, and the machine ends with its kubelet")
	flags.Func("daemon-flags", "`flags` for machine-config-daemon, split at commas", func(text string) error {
		c.DaemonFlags = strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
		return nil
	})
}

// pairs parses k=v,k=v.
func pairs(into *map[string]string) func(string) error {
	return func(text string) error {
		result := map[string]string{}
		for pair := range strings.SplitSeq(text, ",") {
			if pair == "" {
				continue
			}
			key, value, ok := strings.Cut(pair, "=")
			if !ok || key == "" {
				return fmt.Errorf("expected key=value, got %q", pair)
			}
			result[key] = value
		}
		*into = result
		return nil
	}
}

// Validate returns the errors of the configuration.
func (c *Config) Validate() error {
	var errs []error
	for name, value := range map[string]string{
		"dir":                  c.Dir,
		"name":                 c.Name,
		"provider-id":          c.ProviderID,
		"bootstrap-kubeconfig": c.BootstrapKubeconfig,
		"client-ca-file":       c.ClientCAFile,
	} {
		if value == "" {
			errs = append(errs, fmt.Errorf("--%s is missing", name))
		}
	}
	if net.ParseIP(c.NodeIP) == nil {
		errs = append(errs, fmt.Errorf("--node-ip=%q is no IP address", c.NodeIP))
	}
	for name, port := range map[string]int{"port": c.Port, "health-port": c.HealthPort} {
		if port < 1 || port > 65535 {
			errs = append(errs, fmt.Errorf("--%s=%d is no port", name, port))
		}
	}
	if c.CPU < 1 {
		errs = append(errs, fmt.Errorf("--cpu=%d: it must be at least 1", c.CPU))
	}
	if c.MemoryMiB < 1 {
		errs = append(errs, fmt.Errorf("--memory-mib=%d: it must be at least 1", c.MemoryMiB))
	}
	if (c.Volumes == "") != (c.Attached == "") {
		errs = append(errs, fmt.Errorf("--volumes=%q and --attached=%q: give both or neither", c.Volumes, c.Attached))
	}
	return errors.Join(errs...)
}

// InstanceID is the cloud's ID of the machine, the end of its provider ID.
func (c *Config) InstanceID() string { return c.ProviderID[strings.LastIndex(c.ProviderID, "/")+1:] }

// The folders of a disk, which become KubeletDir, PodLogsDir and RootDir.
func (c *Config) kubeletDir() string { return filepath.Join(c.Dir, "kubelet") }
func (c *Config) podLogsDir() string { return filepath.Join(c.Dir, "pods") }
func (c *Config) rootDir() string    { return filepath.Join(c.Dir, "root") }

// folders returns what is mounted into the machine: paths outside by paths inside.
func (c *Config) folders() map[string]string {
	all := map[string]string{KubeletDir: c.kubeletDir(), PodLogsDir: c.podLogsDir(), RootDir: c.rootDir()}
	if c.Volumes != "" {
		all[VolumesDir], all[AttachedDir] = c.Volumes, c.Attached
	}
	if c.Images != "" {
		all[ImagesDir] = c.Images
	}
	return all
}

// writeDisk creates the disk, or completes it, and writes the files for the machine to it.
func (c *Config) writeDisk() error {
	for _, dir := range []string{c.kubeletDir(), c.podLogsDir(), c.rootDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("creating the disk: %w", err)
		}
	}
	files := map[string]string{c.BootstrapKubeconfig: BootstrapKubeconfigPath, c.ClientCAFile: ClientCAPath}
	if c.UserData != "" {
		files[c.UserData] = userDataPath
	}
	for source, path := range files {
		data, err := os.ReadFile(source)
		if err != nil {
			return fmt.Errorf("reading a file for the disk: %w", err)
		}
		if err := os.WriteFile(filepath.Join(c.kubeletDir(), filepath.Base(path)), data, 0o600); err != nil {
			return fmt.Errorf("writing to the disk: %w", err)
		}
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the machine's configuration: %w", err)
	}
	if err := os.WriteFile(filepath.Join(c.kubeletDir(), filepath.Base(ConfigPath)), data, 0o600); err != nil {
		return fmt.Errorf("writing to the disk: %w", err)
	}
	return nil
}

// ReadConfig reads the configuration back, inside of the machine.
func ReadConfig(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("reading the machine's configuration: %w", err)
	}
	var c Config
	if err := json.Unmarshal(data, &c); err != nil {
		return Config{}, fmt.Errorf("the machine's configuration, %s: %w", path, err)
	}
	return c, nil
}
