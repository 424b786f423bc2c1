//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	configv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// bootFile is the file in the configurations of machines that boot with them.
const bootFile = "/etc/demo/motd"

// bootSpace is a namespace whose machines boot with the documented #cloud-config.
func bootSpace(t *testing.T, lab *harness.Lab, name string) *space {
	t.Helper()
	userData, err := harness.CloudConfig("../docs/operations/machine-config.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newSpaceBy(t, lab, unused(name), func(ctx context.Context, namespace string) error {
		return lab.PrepareUserData(ctx, namespace, realKubelet, userData)
	})
	return s
}

// machinePool is a pool of the Nodes of the MachineDeployment pool, which rolls it out.
func machinePool(s *space) *configv1alpha1.MachineConfigPool {
	p := harness.NewPool(s.name, intstr.FromInt32(1))
	p.Spec.NodeSelector, p.Spec.Rollout = nil, configv1alpha1.RolloutMachineDeployment
	p.Spec.MachineRef = &configv1alpha1.MachineReference{Kind: "MachineDeployment", Namespace: s.name, Name: "pool"}
	return p
}

// target sets the configuration of the pool of the namespace, and returns its target, which is
// another one than before.
func target(s *space, config runtime.RawExtension, before string) string {
	s.Helper()
	s.must(s.lab.SetConfig(s.Context(), s.name, "50-"+s.name, config))
	target, err := s.lab.NewTarget(s.Context(), s.name, before)
	s.must(err)
	return target
}

// machinesBootConfigured: machines of a pool whose MachineDeployment rolls out join with their
// configuration, applied before their kubelets start; a change of it replaces them, and the new
// ones join with the new one.
func machinesBootConfigured(s *space) {
	const size = 2
	config := func(content string) runtime.RawExtension {
		return harness.Ignition([]string{harness.File(bootFile, content), harness.File(harness.KubeletFile, harness.MaxPods(66))},
			[]string{harness.Unit("demo.service")})
	}
	_, err := s.lab.Configs.MachineConfigPools().Create(s.Context(), machinePool(s), metav1.CreateOptions{})
	s.must(err)
	first := target(s, config("one"), "")
	s.deploy("pool", 0, inPool(s.name))
	templateNames(s, first)
	film := filmNodes(s)
	s.scale("pool", size)
	s.running("pool", size)
	old := s.joined()
	for node, vm := range old {
		joinsWith(s, film, node, first)
		(&configured{T: s.T, lab: s.lab, node: node, vm: vm}).has(bootFile, "one")
	}
	s.isOnTarget(size)

	within := s.watchLimits(size, size+1)
	second := target(s, config("two"), first)
	templateNames(s, second)
	// A user deletes what machines, and later the MachineSet before, still name.
	s.must(s.lab.Configs.RenderedMachineConfigs().Delete(s.Context(), first, metav1.DeleteOptions{}))
	s.eventually("all machines are of the second configuration", func(ctx context.Context) error {
		machines, err := s.machines(ctx, "pool")
		if err != nil {
			return err
		}
		var wrong deviations
		wrong.unless(len(machines) == size, "there are %d", len(machines))
		for _, m := range machines {
			named := m.Annotations[configv1alpha1.AnnotationMachineConfig]
			wrong.unless(named == second, "%s is of %s", m.Name, named)
		}
		return wrong.err()
	})
	s.running("pool", size)
	within()
	for node, vm := range s.joined() {
		if _, isOld := old[node]; isOld {
			s.Errorf("machine %s was not replaced", node)
		}
		joinsWith(s, film, node, second)
		(&configured{T: s.T, lab: s.lab, node: node, vm: vm}).has(bootFile, "two")
	}
	s.isOnTarget(size)
	if o, err := s.lab.Configs.RenderedMachineConfigs().Get(s.Context(), first, metav1.GetOptions{}); err != nil ||
		o.DeletionTimestamp == nil {
		s.Errorf("the first configuration, which the MachineSet before names: %v, deleted at %v", err, o.DeletionTimestamp)
	}
}

// templateNames waits until the template of the MachineDeployment names a configuration.
func templateNames(s *space, config string) {
	s.Helper()
	s.eventually("the template names "+config, func(ctx context.Context) error {
		d, err := s.api().MachineDeployments(s.name).Get(ctx, "pool", metav1.GetOptions{})
		if err == nil && d.Spec.Template.Annotations[configv1alpha1.AnnotationMachineConfig] != config {
			err = fmt.Errorf("its annotations are %v", d.Spec.Template.Annotations)
		}
		return err
	})
}

// filmNodes records all Nodes.
func filmNodes(s *space) *recording {
	s.Helper()
	film, nodes := &recording{}, s.lab.Target.CoreV1().Nodes()
	follow(s, film, nodes.List, nodes.Watch)
	return film
}

// daemonReports returns what a film shows of a Node from the first report of its daemon on.
func daemonReports(s *space, film *recording, node string) (since []*corev1.Node) {
	s.Helper()
	all, _ := shown[*corev1.Node](s, film)
	for _, n := range all {
		if n.Name == node && (len(since) > 0 || n.Annotations[configv1alpha1.DaemonPrefix.State()] != "") {
			since = append(since, n)
		}
	}
	if len(since) == 0 {
		s.Fatalf("the film of Node %s has no report of its daemon", node)
	}
	return since
}

// joinsWith checks that the daemon of a Node has reported a configuration as applied from its first
// report on, that its kubelet has started with it, and that the Node was neither drained nor
// rebooted for it.
func joinsWith(s *space, film *recording, node, config string) {
	s.Helper()
	since, prefix := daemonReports(s, film, node), configv1alpha1.DaemonPrefix
	for i, n := range since {
		current, state := n.Annotations[prefix.CurrentConfig()], configv1alpha1.ParseNodeState(n.Annotations[prefix.State()])
		if current != config || state != configv1alpha1.StateDone {
			s.Fatalf("Node %s: report %d has %q and %s (%s), want %s from the first on",
				node, i, current, state, n.Annotations[prefix.Reason()], config)
		}
		if n.Spec.Unschedulable || n.Annotations[prefix.DesiredDrain()] != "" {
			s.Errorf("Node %s: after report %d it is cordoned: %t, and to be drained: %q",
				node, i, n.Spec.Unschedulable, n.Annotations[prefix.DesiredDrain()])
		}
		if id := n.Status.NodeInfo.BootID; id != since[0].Status.NodeInfo.BootID {
			s.Errorf("Node %s was rebooted after report %d", node, i)
		}
	}
	all, _ := shown[*corev1.Node](s, film)
	at := slices.IndexFunc(all, func(n *corev1.Node) bool { return n.Name == node && !n.Status.Capacity.Pods().IsZero() })
	if at < 0 || all[at].Status.Capacity.Pods().Value() != 66 {
		s.Errorf("Node %s: its kubelet did not start with the setting of its configuration", node)
	}
}
