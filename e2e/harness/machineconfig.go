package harness

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	configv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

const (
	// DaemonFlags are those of machine-config-daemons in tests. A kubelet answers some seconds after
	// the boot of its VM; on a busy computer 25 s.
	DaemonFlags = "--drift=repair --drift-interval=1s --health-timeout=1m"
	// KubeletFile is where a real kubelet reads its settings.
	KubeletFile = "/etc/kubernetes/kubelet.conf"
	// LabelPool is the label of the Nodes and MachineConfigs of a pool of tests.
	LabelPool = "e2e-pool"
)

// File is a file of an Ignition config.
func File(path, content string) string {
	return fmt.Sprintf(`{"path": %q, "contents": {"source": "data:;base64,%s"}}`, path, base64.StdEncoding.EncodeToString([]byte(content)))
}

// Unit is an enabled unit of an Ignition config.
func Unit(name string) string {
	return fmt.Sprintf(`{"name": %q, "enabled": true, "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"}`,
		name)
}

// Ignition is a config of files and units.
func Ignition(files, units []string) runtime.RawExtension {
	return runtime.RawExtension{
		Raw: fmt.Appendf(nil, `{"ignition": {"version": "3.5.0"}, "storage": {"files": [%s]}, "systemd": {"units": [%s]}}`,
			strings.Join(files, ","), strings.Join(units, ",")),
	}
}

// MaxPods are settings of a kubelet.
func MaxPods(n int) string {
	return fmt.Sprintf(`{"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1", "maxPods": %d}`, n)
}

// NewPool is a pool of the Nodes and MachineConfigs that have its name as LabelPool.
func NewPool(name string, maxUnavailable intstr.IntOrString) *configv1alpha1.MachineConfigPool {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{LabelPool: name}}
	return &configv1alpha1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{LabelPool: name}},
		Spec: configv1alpha1.MachineConfigPoolSpec{
			MachineConfigSelector: selector, NodeSelector: selector, MaxUnavailable: &maxUnavailable,
		},
	}
}

// SetConfig creates or changes a MachineConfig of a pool.
func (l *Lab) SetConfig(ctx context.Context, pool, name string, config runtime.RawExtension) error {
	api := l.Configs.MachineConfigs()
	_, err := api.Create(ctx, &configv1alpha1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{LabelPool: pool}},
		Spec:       configv1alpha1.MachineConfigSpec{Config: config},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = api.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"config":%s}}`, config.Raw), metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("set MachineConfig %s: %w", name, err)
	}
	return nil
}

// PatchPool merges a patch into a pool.
func (l *Lab) PatchPool(ctx context.Context, name, patch string) error {
	if _, err := l.Configs.MachineConfigPools().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("change pool %s: %w", name, err)
	}
	return nil
}

// NewTarget waits until a pool has another target than before, and returns it.
func (l *Lab) NewTarget(ctx context.Context, pool, before string) (target string, err error) {
	err = Eventually(ctx, "pool "+pool+" has another target than "+strconv.Quote(before), func(ctx context.Context) error {
		p, err := l.Configs.MachineConfigPools().Get(ctx, pool, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if target = p.Status.CurrentMachineConfig; target == "" || target == before {
			return fmt.Errorf("its conditions are %v", p.Status.Conditions)
		}
		return nil
	})
	return target, err
}

// PoolNodes lists the Nodes of a pool.
func (l *Lab) PoolNodes(ctx context.Context, pool string) ([]corev1.Node, error) {
	list, err := l.Target.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: LabelPool + "=" + pool})
	if err != nil {
		return nil, fmt.Errorf("list the Nodes of pool %s: %w", pool, err)
	}
	return list.Items, nil
}

// AllOn waits until a pool has n Nodes, and all of them are done with a configuration and available
// to pods.
func (l *Lab) AllOn(ctx context.Context, pool, target string, n int) error {
	return Eventually(ctx, fmt.Sprintf("the %d Nodes of pool %s have %s", n, pool, target), func(ctx context.Context) error {
		nodes, err := l.PoolNodes(ctx, pool)
		if err == nil && len(nodes) != n {
			err = fmt.Errorf("there are %d", len(nodes))
		}
		for i := range nodes {
			if at := stageOf(&nodes[i]); !at.serves || at.desired != target {
				err = errors.Join(err, fmt.Errorf("%s: %s", nodes[i].Name, at))
			}
		}
		return err
	})
}

// AnnotateNode sets an annotation of a Node of the target cluster.
func (l *Lab) AnnotateNode(ctx context.Context, node, key, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}})
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	if _, err := l.Target.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("annotate Node %s: %w", node, err)
	}
	return nil
}

// MachineFile returns the path on this computer of a file that the daemon in a VM with a real
// kubelet configures.
func (l *Lab) MachineFile(vm, name string) string {
	return filepath.Join(l.vmDir(vm), "root", filepath.FromSlash(name))
}

func (l *Lab) vmDir(vm string) string { return filepath.Join(l.Dir, "cloudsim", "vms", vm) }

// Console returns the console of a VM with a real kubelet, by its provider ID.
func (l *Lab) Console(providerID string) (string, error) {
	content, err := os.ReadFile(filepath.Join(l.vmDir(path.Base(providerID)), "console.log"))
	if err != nil {
		return "", fmt.Errorf("read the console of VM %s: %w", providerID, err)
	}
	return string(content), nil
}

// CloudConfig returns the #cloud-config of a page of the documentation for VMs of a lab: their
// image has the daemon, which is not downloaded, and their kubelets join with the bootstrap token.
func CloudConfig(page string) (string, error) {
	const begin, header = "```yaml\n", "#cloud-config\n"
	content, err := os.ReadFile(page)
	if err != nil {
		return "", fmt.Errorf("read the #cloud-config: %w", err)
	}
	_, rest, found := strings.Cut(string(content), begin+header)
	form, _, ends := strings.Cut(rest, "```")
	if !found || !ends {
		return "", fmt.Errorf("%s: expected a block of code that begins with %q", page, header)
	}
	kept := []string{header, "# The kubelet joins with " + machinev1alpha1.PlaceholderBootstrapToken + "\n"}
	for line := range strings.Lines(form) {
		if !strings.HasPrefix(line, "- curl ") && !strings.Contains(line, "sha256sum") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, ""), nil
}

// Daemon returns the process of the machine-config-daemon of a VM with a real kubelet; 0 while it
// has none.
func (l *Lab) Daemon(vm string) (pid int, err error) {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	variable := []byte("CLOUDSIM_VM_DIR=" + l.vmDir(vm) + "\x00")
	for _, dir := range processes {
		command, err1 := os.ReadFile(filepath.Join(dir, "cmdline"))
		environment, err2 := os.ReadFile(filepath.Join(dir, "environ"))
		program, _, _ := bytes.Cut(command, []byte{0})
		if err1 == nil && err2 == nil && string(program) == "machine-config-daemon" && bytes.Contains(environment, variable) {
			return strconv.Atoi(filepath.Base(dir))
		}
	}
	return 0, nil
}
