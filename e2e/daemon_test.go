//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// configured is a Node that a daemon configures.
type configured struct {
	*testing.T

	lab      *harness.Lab
	node, vm string
}

// daemonWorks: the daemon in a VM applies what is desired for its Node, with a drain and a reboot,
// the kubelet uses its settings, and what the kubelet does not start with is undone. The Node is in
// no pool: the test takes the part of the controllers.
func (s *space) daemonWorks() {
	s.createMachine(s.name + "-vm")
	s.running("", 1)
	c := &configured{T: s.T, lab: s.lab, node: s.name + "-vm"}
	c.vm = s.joined()[c.node]
	before := c.bootID()

	first := c.render(harness.Ignition([]string{
		harness.File("/etc/sysctl.d/10-demo.conf", "vm.swappiness=1\n"), harness.File(harness.KubeletFile, harness.MaxPods(77)),
	}, []string{harness.Unit("demo.service")}))
	c.desire(first)
	c.isDone(first)
	c.eventually("the Node was rebooted", func(n *corev1.Node) error { // the kubelet reports it after its start, when it has time
		if after := n.Status.NodeInfo.BootID; after == before {
			return fmt.Errorf("its boot ID is still %s", after)
		}
		return nil
	})
	c.has("/etc/sysctl.d/10-demo.conf", "vm.swappiness=1\n")
	if target, err := os.Readlink(c.path("/etc/systemd/system/multi-user.target.wants/demo.service")); err != nil ||
		target != "/etc/systemd/system/demo.service" {
		s.Errorf("the unit is not enabled: %q, %v", target, err)
	}
	c.eventually("the Node has the kubelet's setting", func(n *corev1.Node) error {
		if pods := n.Status.Capacity.Pods().Value(); pods != 77 {
			return fmt.Errorf("it has room for %d pods", pods)
		}
		return nil
	})

	s.Log("drift is repaired")
	if err := os.WriteFile(c.path("/etc/sysctl.d/10-demo.conf"), []byte("vm.swappiness=99\n"), 0o644); err != nil {
		s.Fatal(err)
	}
	c.eventually("the file is repaired", func(*corev1.Node) error { return c.contains("/etc/sysctl.d/10-demo.conf", "vm.swappiness=1\n") })

	s.Log("a configuration with which the kubelet does not start is undone, and the daemon is killed meanwhile")
	broken := c.render(harness.Ignition([]string{harness.File(harness.KubeletFile, harness.MaxPods(-1))}, nil))
	c.desire(broken)
	s.eventually("the daemon requests a drain", func(ctx context.Context) error {
		n, err := s.lab.Target.CoreV1().Nodes().Get(ctx, c.node, metav1.GetOptions{})
		if err == nil && n.Annotations[v1alpha1.DaemonPrefix.DesiredDrain()] != v1alpha1.DrainFor(broken) {
			err = fmt.Errorf("its annotations are %v", n.Annotations)
		}
		return err
	})
	c.killDaemon()
	c.eventually("the daemon reports the failure", func(n *corev1.Node) error {
		reason := n.Annotations[v1alpha1.DaemonPrefix.Reason()]
		if err := c.isIn(n, v1alpha1.StateDegraded); err != nil || !strings.Contains(reason, "not healthy within") {
			return errors.Join(err, fmt.Errorf("its reason is %q", reason))
		}
		return nil
	})
	c.desire(first)
	c.isDone(first)
	c.has(harness.KubeletFile, harness.MaxPods(77))
}

// render creates a RenderedMachineConfig, and returns its name.
func (c *configured) render(config runtime.RawExtension) string {
	c.Helper()
	spec := v1alpha1.RenderedMachineConfigSpec{MachineConfigSpec: v1alpha1.MachineConfigSpec{Config: config}}
	name, err := v1alpha1.RenderedName("test", &spec)
	if err != nil {
		c.Fatal(err)
	}
	rendered := &v1alpha1.RenderedMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if _, err := c.lab.Configs.RenderedMachineConfigs().Create(c.Context(), rendered, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	return name
}

// desire assigns a configuration to the Node.
func (c *configured) desire(config string) {
	c.Helper()
	c.annotate(v1alpha1.DaemonPrefix.DesiredConfig(), config)
}

func (c *configured) annotate(key, value string) {
	c.Helper()
	if err := c.lab.AnnotateNode(c.Context(), c.node, key, value); err != nil {
		c.Fatal(err)
	}
}

// isDone waits until the daemon is done with a configuration.
func (c *configured) isDone(config string) {
	c.Helper()
	c.eventually("the Node has "+config, func(n *corev1.Node) error {
		if current := n.Annotations[v1alpha1.DaemonPrefix.CurrentConfig()]; current != config {
			return fmt.Errorf("it has %q: %s", current, n.Annotations[v1alpha1.DaemonPrefix.Reason()])
		}
		return c.isIn(n, v1alpha1.StateDone)
	})
}

func (c *configured) isIn(n *corev1.Node, want v1alpha1.NodeState) error {
	if state := v1alpha1.ParseNodeState(n.Annotations[v1alpha1.DaemonPrefix.State()]); state != want {
		return fmt.Errorf("its state is %q: %s", state, n.Annotations[v1alpha1.DaemonPrefix.Reason()])
	}
	return nil
}

// eventually waits until check returns nil, and meanwhile answers the daemon's requests for drains,
// as a controller does.
func (c *configured) eventually(what string, check func(*corev1.Node) error) {
	c.Helper()
	err := harness.EventuallyEvery(c.lab.Context(c.T), interval, what, func(ctx context.Context) error {
		n, err := c.lab.Target.CoreV1().Nodes().Get(ctx, c.node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		prefix := v1alpha1.DaemonPrefix
		if wanted := n.Annotations[prefix.DesiredDrain()]; wanted != n.Annotations[prefix.LastAppliedDrain()] {
			if err := c.lab.AnnotateNode(ctx, c.node, prefix.LastAppliedDrain(), wanted); err != nil {
				return err
			}
		}
		return check(n)
	})
	if err != nil {
		c.Fatal(err)
	}
}

func (c *configured) bootID() string {
	c.Helper()
	n, err := c.lab.Target.CoreV1().Nodes().Get(c.Context(), c.node, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return n.Status.NodeInfo.BootID
}

// path is that of a file of the machine, on this computer.
func (c *configured) path(name string) string { return c.lab.MachineFile(c.vm, name) }

func (c *configured) contains(name, want string) error {
	content, err := os.ReadFile(c.path(name))
	if err == nil && string(content) != want {
		err = fmt.Errorf("%s: %q, want %q", name, content, want)
	}
	return err
}

func (c *configured) has(name, want string) {
	c.Helper()
	if err := c.contains(name, want); err != nil {
		c.Error(err)
	}
}

// killDaemon kills the daemon of the VM.
func (c *configured) killDaemon() {
	c.Helper()
	pid, err := c.lab.Daemon(c.vm)
	if err == nil && pid != 0 {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil || pid == 0 {
		c.Fatalf("kill the daemon of VM %s, process %d: %v", c.vm, pid, err)
	}
}
