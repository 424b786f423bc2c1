//go:build e2e

package attack

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
)

const (
	quarantine      = "example.com/quarantine"
	restrictedLabel = "node-restriction.kubernetes.io/tier"
)

// kubelet is the access of the kubelet of a Node.
func (a *tenant) kubelet(node string) kubernetes.Interface {
	a.Helper()
	client, err := kubernetes.NewForConfig(as(a.lab.TargetConfig, "system:node:"+node, "system:nodes", "system:authenticated"))
	a.must(err)
	return client
}

// nodeOf waits until the Node of a machine is bound to it.
func (a *tenant) nodeOf(m *v1alpha1.Machine) (node *corev1.Node) {
	a.Helper()
	a.eventually("the Node of machine "+m.Name+" is claimed", func(ctx context.Context) (err error) {
		node, err = a.lab.Target.CoreV1().Nodes().Get(ctx, nodeOf(m), metav1.GetOptions{})
		if err == nil && node.Annotations[v1alpha1.AnnotationMachine] == "" {
			err = fmt.Errorf("it has annotations %v", node.Annotations)
		}
		return err
	})
	return node
}

// kubeletAroundTheAdmin records on its own Node that the fleet has put an administrator's taint and
// label there, and then that the Node is the victim's. The fleet removes neither, and the victim's
// machine has no other Node than before.
func kubeletAroundTheAdmin(a *tenant) {
	m := a.machine(a.named("mine"), harness.ClassName, func(m *v1alpha1.Machine) {
		m.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "a"}
	})
	m = a.running(m.Name)
	node := a.nodeOf(m)
	nodes := a.lab.Target.CoreV1().Nodes()
	_, err := nodes.Patch(a.ctx, node.Name, types.StrategicMergePatchType, fmt.Appendf(nil,
		`{"metadata":{"labels":{%q:"gold"}},"spec":{"taints":[{"key":%q,"value":"yes","effect":"NoSchedule"}]}}`, restrictedLabel, quarantine),
		metav1.PatchOptions{})
	a.must(err)

	kubelet := a.kubelet(node.Name).CoreV1().Nodes()
	annotate := func(key, value string) {
		_, err := kubelet.Patch(a.ctx, node.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value), metav1.PatchOptions{})
		a.must(err)
	}
	annotate(v1alpha1.AnnotationLastAppliedNodeTemplate, fmt.Sprintf(
		`{"metadata":{"labels":{"pool":"a",%q:"gold"}},"spec":{"taints":[{"key":%q,"value":"yes","effect":"NoSchedule"}]}}`,
		restrictedLabel, quarantine))
	if _, err := kubelet.Patch(a.ctx, nodeOf(&a.victim.machines[0]), types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
		metav1.PatchOptions{}); err == nil {
		a.Error("the kubelet of one Node can write another one: the lab does not restrict kubelets")
	}
	_, err = a.api.Machines(a.namespace).Patch(a.ctx, m.Name, types.MergePatchType,
		[]byte(`{"spec":{"nodeTemplate":{"metadata":{"labels":{"pool":"b"}}}}}`), metav1.PatchOptions{})
	a.must(err)
	a.eventually("the Node has the labels of the machine's template", func(ctx context.Context) error {
		now, err := nodes.Get(ctx, node.Name, metav1.GetOptions{})
		if err == nil && now.Labels["pool"] != "b" {
			err = fmt.Errorf("it has labels %v", now.Labels)
		}
		return err
	})
	a.keepsTheAdmins(node.Name)

	victim := a.victim.machines[0]
	annotate(v1alpha1.AnnotationMachine, victim.Namespace+"/"+victim.Name+"/"+string(victim.UID))
	a.remove(m.Name)
	a.gone(m.Name)
	a.keepsTheAdmins(node.Name)
}

// keepsTheAdmins checks that a Node, if it exists, has what an administrator has put on it.
func (a *tenant) keepsTheAdmins(name string) {
	a.Helper()
	node, err := a.lab.Target.CoreV1().Nodes().Get(a.ctx, name, metav1.GetOptions{})
	if err != nil {
		a.must(notFound(err))
		return
	}
	isTainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == quarantine })
	if !isTainted || node.Labels[restrictedLabel] != "gold" {
		a.Errorf("Node %s has taints %v and labels %v", name, node.Spec.Taints, node.Labels)
	}
}

// flaps is how often a kubelet changes its readiness.
const flaps = 300

// kubeletThatFlaps reports repeatedly that its Node is ready, and that it is not.
func kubeletThatFlaps(a *tenant) {
	m := a.running(a.machine(a.named("mine"), harness.ClassName).Name)
	node := a.nodeOf(m)
	kubelet := a.kubelet(node.Name).CoreV1().Nodes()
	begin := time.Now()
	position, err := a.lab.AuditEnd()
	a.must(err)
	for i := range flaps {
		status := []string{"False", "True"}[i%2]
		patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"Flap%d","message":%q}]}}`,
			status, i, strings.Repeat("x", 2000))
		_, err := kubelet.Patch(a.ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		a.must(err)
	}
	a.running(m.Name)
	requests, err := a.lab.Requests(position)
	a.must(err)
	statuses := 0
	for _, r := range requests {
		if r.IsFleet() && r.IsWrite() && r.Namespace == a.namespace && r.Name == m.Name {
			statuses++
		}
	}
	events := 0
	list, err := a.lab.Control.EventsV1().Events(a.namespace).List(a.ctx, metav1.ListOptions{})
	a.must(err)
	for _, e := range list.Items {
		if e.Series != nil {
			events += int(e.Series.Count)
		}
		events++
	}
	took := time.Since(begin)
	// How many statuses, and Events of two reasons, that may cause in the time in which they are
	// counted.
	mostWrites := pacing.MachineBurst + int(took/pacing.MachineInterval)
	mostEvents := 2 * (pacing.EventBurst + int(took/pacing.EventInterval))
	a.Logf("%d changes in %s: %d writes of the machine, %d Events", flaps, took.Round(time.Millisecond), statuses, events)
	if statuses == 0 || statuses > mostWrites || events > mostEvents {
		a.Errorf("want 1 to %d writes and at most %d Events", mostWrites, mostEvents)
	}
}
