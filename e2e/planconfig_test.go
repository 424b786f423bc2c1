//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	configv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/plan"
)

// The rules of the pool: a change below restarted restarts a service, one below unnoticed does
// nothing, and all others reboot.
const restarted, unnoticed, rebooted, service = "/etc/demo.d", "/etc/motd.d", "/etc/sysctl.d", "demo.service"

// restartOf is a restart in the log of a daemon.
var restartOf = regexp.MustCompile(`restart\W+--\W+demo\.service`)

// configPool is a pool of Nodes whose configuration is planned and changed.
type configPool struct {
	*space

	size int
	vms  map[string]string // by Node
}

// TestPlansOfConfigs changes MachineConfigs and a KubeletConfig of Nodes with real kubelets and
// daemons, and compares each with its plan: which Nodes reboot, restart a service or do neither, in
// which order, and which pods leave them.
func TestPlansOfConfigs(t *testing.T) {
	if !harness.KubeletsWork(t) {
		t.Skip("the lab boots simulated Nodes only")
	}
	t.Parallel()
	lab := startLab(t, "planconfigs", func(o *harness.Options) {
		o.Replicas, o.MachineConfiguration, o.DaemonFlags = 1, true, harness.DaemonFlags
	})
	c := &configPool{space: newSpace(t, lab, "planconfigs", realKubelet), size: 3}
	c.deploy("workers", int32(c.size), inPool(c.name))
	c.running("workers", c.size)
	c.vms = c.joined()
	c.must(lab.SetConfig(t.Context(), c.name, "50-"+c.name, c.files("one", "one", "one")))
	pool := harness.NewPool(c.name, intstr.FromInt32(1))
	pool.Spec.Actions = []configv1alpha1.ActionRule{
		{Path: restarted, Action: configv1alpha1.ActionRestart, Service: service}, {Path: unnoticed, Action: configv1alpha1.ActionNone},
	}
	_, err := lab.Configs.MachineConfigPools().Create(t.Context(), pool, metav1.CreateOptions{})
	c.must(err)
	c.eventually("the pool has a target", func(ctx context.Context) error {
		p, err := lab.Configs.MachineConfigPools().Get(ctx, c.name, metav1.GetOptions{})
		if err == nil && p.Status.CompletedMachineConfig == "" {
			err = fmt.Errorf("its status is %+v", p.Status)
		}
		return err
	})
	c.isOnTarget(c.size)
	c.workload()
	c.spread("app", int32(c.size), slices.Collect(maps.Keys(c.vms)))

	c.agrees("a reboot", c.config("one", "one", "two"), true, 0)
	c.agrees("a restart of a service", c.config("two", "one", "two"), false, c.size)
	c.agrees("neither", c.config("two", "two", "two"), false, 0)
	c.agrees("a KubeletConfig", map[string]any{
		"apiVersion": configv1alpha1.SchemeGroupVersion.String(), "kind": "KubeletConfig", "metadata": map[string]any{"name": c.name},
		"spec": map[string]any{
			"machineConfigPoolSelector": map[string]any{"matchLabels": map[string]any{harness.LabelPool: c.name}},
			"kubeletConfig":             map[string]any{"maxPods": 55},
		},
	}, true, 0)
}

// files is a configuration with a file for each rule.
func (c *configPool) files(ofRestarted, ofUnnoticed, ofRebooted string) runtime.RawExtension {
	return harness.Ignition([]string{
		harness.File(restarted+"/a", ofRestarted), harness.File(unnoticed+"/a", ofUnnoticed), harness.File(rebooted+"/a.conf", ofRebooted),
	}, []string{harness.Unit(service)})
}

// config is the MachineConfig of the pool as a user applies it.
func (c *configPool) config(ofRestarted, ofUnnoticed, ofRebooted string) map[string]any {
	return map[string]any{
		"apiVersion": configv1alpha1.SchemeGroupVersion.String(), "kind": "MachineConfig",
		"metadata": map[string]any{"name": "50-" + c.name, "labels": map[string]any{harness.LabelPool: c.name}},
		"spec":     map[string]any{"config": c.files(ofRestarted, ofUnnoticed, ofRebooted)},
	}
}

// agrees plans a change and applies it, and compares both: whether Nodes reboot, and how many of
// them restart the service.
func (c *configPool) agrees(what string, object map[string]any, reboots bool, restarts int) {
	c.Helper()
	content, err := json.Marshal(object)
	c.must(err)
	file := filepath.Join(c.TempDir(), "change.json")
	c.must(os.WriteFile(file, content, 0o600))
	pods := c.podsByNode()
	out, code := c.mcf("plan", "-f", file, "-o", "json", "--exit-code", "--update-time=1m")
	var p plan.Plan
	if code != 3 || json.Unmarshal([]byte(out), &p) != nil || len(p.Pools) != 1 {
		c.Fatalf("%s: kubectl mcf plan: exit code %d: %s", what, code, out)
	}
	var planned, plannedDrains []string
	plannedPods := map[string][]string{}
	for _, step := range p.Steps {
		switch step.Do { //nolint:exhaustive // no machine is created or deleted
		case plan.DrainNode:
			plannedDrains = append(plannedDrains, step.Name)
			plannedPods[step.Name] = step.Pods
		case plan.RebootNode, plan.ApplyNode:
			planned = append(planned, step.Name)
		}
		if step.Do == plan.RebootNode != reboots && step.Do != plan.DrainNode {
			c.Errorf("%s: planned is %s of Node %s", what, step.Do, step.Name)
		}
	}
	if p.Pools[0].Reboot != reboots || (len(p.Pools[0].Restart) > 0) != (restarts > 0) {
		c.Errorf("%s: planned is %+v", what, p.Pools[0])
	}

	before, restartsBefore := boots(c.space), c.restarts()
	begun := time.Now()
	drains, done := c.follow(file, p.Pools[0].After)
	if !slices.Equal(done, planned) || !slices.Equal(drains, plannedDrains) {
		c.Errorf("%s: planned are drains of %v and updates of %v, happened drains of %v and updates of %v", what, plannedDrains, planned,
			drains, done)
	}
	for node, id := range boots(c.space) {
		if (id != before[node]) != reboots {
			c.Errorf("%s: Node %s was rebooted: %t, planned: %t", what, node, id != before[node], reboots)
		}
	}
	if got := c.restarts() - restartsBefore; got != restarts {
		c.Errorf("%s: %d Nodes have restarted %s, want %d", what, got, service, restarts)
	}
	left := map[string][]string{}
	for node, now := range c.podsByNode() {
		for _, pod := range pods[node] {
			if !slices.Contains(now, pod) {
				left[node] = append(left[node], pod)
			}
		}
	}
	if fmt.Sprint(left) != fmt.Sprint(plannedPods) {
		c.Errorf("%s: pods %v have left, planned: %v", what, left, plannedPods)
	}
	if out, code := c.mcf("plan", "-f", file, "--exit-code"); code != 0 {
		c.Errorf("%s: afterwards the same file has a plan: exit code %d: %s", what, code, out)
	}
	c.Logf("%s: drains of %d Nodes, updates of %d, pods %v; %s", what, len(drains), len(done), left, time.Since(begun).Round(time.Second))
}

// follow applies a file, waits until all Nodes serve with a target, and returns the Nodes in the
// order in which they were cordoned, and in which they had it.
func (c *configPool) follow(file, target string) (drains, done []string) {
	c.Helper()
	list, err := c.lab.Target.CoreV1().Nodes().List(c.Context(), metav1.ListOptions{})
	c.must(err)
	ctx, cancel := context.WithTimeout(c.Context(), 5*time.Minute)
	defer cancel()
	watcher, err := harness.Watch(ctx, list.ResourceVersion, c.lab.Target.CoreV1().Nodes().Watch)
	c.must(err)
	_, err = c.lab.Kubectl(ctx, "--kubeconfig="+filepath.Join(c.lab.Dir, "target.kubeconfig"), "apply", "-f", file)
	c.must(err)
	for len(done) < c.size {
		event, open := <-watcher.ResultChan()
		n, isNode := event.Object.(*corev1.Node)
		if !open || !isNode {
			c.Fatalf("%v have %s, and the watch of Nodes has ended: %v", done, target, event)
		}
		if n.Spec.Unschedulable && !slices.Contains(drains, n.Name) {
			drains = append(drains, n.Name)
		}
		if n.Annotations[configv1alpha1.DaemonPrefix.CurrentConfig()] == target && !slices.Contains(done, n.Name) {
			done = append(done, n.Name)
		}
	}
	c.isOnTarget(c.size)
	return drains, done
}

// podsByNode returns the pods of each Node, when all are ready.
func (c *configPool) podsByNode() (on map[string][]string) {
	c.Helper()
	c.eventually("all pods are ready", func(ctx context.Context) error {
		on = map[string][]string{}
		pods, err := c.podsOf(ctx, "app")
		for _, pod := range pods {
			on[pod.Spec.NodeName] = append(on[pod.Spec.NodeName], pod.Namespace+"/"+pod.Name)
		}
		if err == nil && len(on) != c.size {
			err = fmt.Errorf("pods are %v", on)
		}
		return err
	})
	return on
}

// restarts returns how often daemons have requested a restart of the service: VMs of labs have no
// systemd, and their daemons log it.
func (c *configPool) restarts() (n int) {
	c.Helper()
	for _, vm := range c.vms {
		console, err := c.lab.Console(vm)
		c.must(err)
		n += len(restartOf.FindAllString(console, -1))
	}
	return n
}
