//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// neverEnds has a pod of a simulated Node never end by itself.
var neverEnds = map[string]string{cloudapi.AnnotationPodTermination: "-1s"}

// workload prepares the test's namespace in the target cluster for pods.
func (s *space) workload() {
	s.Helper()
	core := s.lab.Target.CoreV1()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	if _, err := core.Namespaces().Create(s.Context(), namespace, metav1.CreateOptions{}); err == nil {
		s.Cleanup(func() {
			err := core.Namespaces().Delete(context.WithoutCancel(s.Context()), s.name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				s.Error(err)
			}
		})
	} else if !apierrors.IsAlreadyExists(err) { // it does when the target cluster is the control cluster
		s.Fatal(err)
	}
	s.eventually("pods can be made", func(ctx context.Context) error {
		_, err := core.ServiceAccounts(s.name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// pause is the spec of a pod that does nothing.
func pause() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "pause", Image: "pause"}}}
}

// podOn makes a pod on a Node.
func (s *space) podOn(node, name string, annotations map[string]string) {
	s.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: pause()}
	pod.Spec.NodeName = node
	_, err := s.lab.Target.CoreV1().Pods(s.name).Create(s.Context(), pod, metav1.CreateOptions{})
	s.must(err)
}

// spread makes a ReplicaSet whose pods run on these Nodes only, one on each.
func (s *space) spread(name string, replicas int32, nodes []string) {
	s.Helper()
	labels := map[string]string{"app": name}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.ReplicaSetSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pause()},
	}}
	set.Spec.Template.Spec.Affinity = &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: nodes,
			}}}},
		}},
		PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: labels}, TopologyKey: corev1.LabelHostname,
		}}},
	}
	_, err := s.lab.Target.AppsV1().ReplicaSets(s.name).Create(s.Context(), set, metav1.CreateOptions{})
	s.must(err)
}

// budget makes a PodDisruptionBudget for the pods of a ReplicaSet, and waits until it is in force.
func (s *space) budget(name, app string, minAvailable, pods int32) {
	s.Helper()
	budgets := s.lab.Target.PolicyV1().PodDisruptionBudgets(s.name)
	_, err := budgets.Create(s.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(minAvailable)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	s.eventually("budget "+name+" knows its pods", func(ctx context.Context) error {
		b, err := budgets.Get(ctx, name, metav1.GetOptions{})
		if err == nil && (b.Status.CurrentHealthy != pods || b.Status.ObservedGeneration != b.Generation) {
			err = fmt.Errorf("status %+v", b.Status)
		}
		return err
	})
}

// podsOf lists the pods of a ReplicaSet that run and are ready.
func (s *space) podsOf(ctx context.Context, app string) (ready []corev1.Pod, err error) {
	list, err := s.lab.Target.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	for _, p := range list.Items {
		if isReady(&p) {
			ready = append(ready, p)
		}
	}
	return ready, nil
}

// isReady says that the pod counts for its budgets.
func isReady(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// ready waits until so many pods of a ReplicaSet are ready.
func (s *space) ready(app string, n int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%d pods of %s are ready", n, app), func(ctx context.Context) error {
		pods, err := s.podsOf(ctx, app)
		if err == nil && len(pods) != n {
			err = fmt.Errorf("%d are", len(pods))
		}
		return err
	})
}

// stand makes stand-alone machines, and returns their names when they run.
func (s *space) stand(n int, change ...func(*v1alpha1.Machine)) []string {
	s.Helper()
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%d", s.name, i))
		s.createMachine(names[i], change...)
	}
	s.running("", n)
	return names
}

// TestDrainRespectsBudgets deletes two of three machines at once whose pods must not go at the same time.
func TestDrainRespectsBudgets(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "drain-budget", "")
	s.workload()
	names := s.stand(3)
	s.spread("web", 2, names[:2])
	s.spread("other", 2, names[:2])
	s.ready("web", 2)
	s.ready("other", 2)
	s.budget("web", "web", 1, 2)
	s.everywhere("web", names[2])
	s.everywhere("other", names[2])
	mark, err := s.lab.MarkAudit()
	s.must(err)

	s.remove("machines", names[0])
	s.remove("machines", names[1])
	s.eventually("both machines are gone", func(ctx context.Context) error {
		machines, err := s.machines(ctx, "")
		if err != nil {
			return err
		}
		pods, err := s.podsOf(ctx, "web")
		if err == nil && len(pods) == 0 {
			s.Fatal("no pod of web is ready, and its budget wants one")
		}
		if len(machines) > 1 {
			return errors.Join(err, fmt.Errorf("there are %d: %s", len(machines), machines[0].Status.LastOperation.Description))
		}
		return err
	})
	requests, err := s.lab.Requests(mark)
	s.must(err)
	evicted := 0
	for _, r := range requests {
		if !r.IsFleet() || r.Namespace != s.name || r.Resource != "pods" {
			continue
		}
		if r.Verb == "delete" {
			s.Errorf("pod %s was deleted, and not evicted", r.Name)
		}
		if r.Subresource == "eviction" && r.Code == 201 {
			evicted++
		}
	}
	if evicted < 4 {
		s.Errorf("%d pods were evicted, want all 4", evicted)
	}
	s.tells(names[0], v1alpha1.EventDrained)

	// The last one cannot go while the budget is there: nowhere else can its pods run.
	s.remove("machines", names[2])
	s.says(names[2], "held by PodDisruptionBudget "+s.name+"/web")
	s.must(s.lab.Target.PolicyV1().PodDisruptionBudgets(s.name).Delete(s.Context(), "web", metav1.DeleteOptions{}))
	s.gone()
}

// everywhere lets the pods that a ReplicaSet makes from now on share Nodes, and run on one more.
func (s *space) everywhere(app, node string) {
	s.Helper()
	sets := s.lab.Target.AppsV1().ReplicaSets(s.name)
	set, err := sets.Get(s.Context(), app, metav1.GetOptions{})
	s.must(err)
	affinity := set.Spec.Template.Spec.Affinity
	affinity.PodAntiAffinity = nil
	nodes := &affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Values
	*nodes = append(*nodes, node)
	_, err = sets.Update(s.Context(), set, metav1.UpdateOptions{})
	s.must(err)
}

// says waits until a machine's last operation has a text.
func (s *space) says(machine, text string) {
	s.Helper()
	s.eventually(fmt.Sprintf("machine %s says %q", machine, text), func(ctx context.Context) error {
		m, err := s.api().Machines(s.name).Get(ctx, machine, metav1.GetOptions{})
		if err == nil && !strings.Contains(m.Status.LastOperation.Description, text) {
			err = fmt.Errorf("it says %q", m.Status.LastOperation.Description)
		}
		return err
	})
}

// tells waits for an Event on a machine.
func (s *space) tells(machine, reason string) {
	s.Helper()
	s.eventually(fmt.Sprintf("machine %s has the Event %s", machine, reason), func(ctx context.Context) error {
		list, err := s.lab.Control.CoreV1().Events(s.name).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + machine})
		if err != nil {
			return err
		}
		var reasons []string
		for _, e := range list.Items {
			reasons = append(reasons, e.Reason)
		}
		if !slices.Contains(reasons, reason) {
			return fmt.Errorf("it has %v", reasons)
		}
		return nil
	})
}

// TestDrainIsForcedAtItsTimeout has a budget that never lets its pods go: that is said soon, and overridden in the end.
func TestDrainIsForcedAtItsTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 25 * time.Second
	s := newSpace(t, shared(t), "drain-timeout", "")
	s.workload()
	names := s.stand(1, func(m *v1alpha1.Machine) {
		m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineDrainTimeout: &metav1.Duration{Duration: timeout}}
	})
	s.spread("db", 1, names)
	s.ready("db", 1)
	s.budget("never", "db", 1, 1)
	s.podOn(names[0], "plain", nil)
	s.podOn(names[0], "forever", neverEnds)
	vm := s.joined()[names[0]]
	s.remove("machines", names[0])
	deleted := time.Now()

	m := &v1alpha1.Machine{}
	s.eventually("the machine names the budget", func(ctx context.Context) (err error) {
		m, err = s.api().Machines(s.name).Get(ctx, names[0], metav1.GetOptions{})
		op := m.Status.LastOperation
		if err == nil && (op.State != v1alpha1.MachineStateFailed || !strings.Contains(op.Description, "PodDisruptionBudget "+s.name+"/never")) {
			err = fmt.Errorf("it says %s %q", op.State, op.Description)
		}
		return err
	})
	if took := time.Since(deleted); took > 10*time.Second {
		s.Errorf("it names the budget after %s", took)
	}
	node, err := s.lab.Target.CoreV1().Nodes().Get(s.Context(), names[0], metav1.GetOptions{})
	s.must(err)
	if !node.Spec.Unschedulable || !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.NodeTerminating && c.Status == corev1.ConditionTrue && c.Reason == v1alpha1.NodeReasonScaleDown
	}) {
		s.Errorf("unschedulable: %t, conditions %v", node.Spec.Unschedulable, node.Status.Conditions)
	}
	s.tells(names[0], v1alpha1.EventDrainBlocked)
	s.gone()
	s.tells(names[0], v1alpha1.EventDrainForced)
	s.deletedAfter(vm, m.DeletionTimestamp.Add(timeout))
}

// deletedAfter makes sure that the cloud was not asked to delete a VM before a time.
func (s *space) deletedAfter(vm string, early time.Time) {
	s.Helper()
	calls, err := s.lab.Cloud.Calls()
	s.must(err)
	found := false
	for _, c := range calls {
		if c.Operation != cloudapi.OpDeleteInstance || c.Instance != vm {
			continue
		}
		found = true
		if c.Start.Before(early) {
			s.Errorf("VM %s was deleted at %s, %s before its time", vm, c.Start, early.Sub(c.Start))
		}
	}
	if !found {
		s.Errorf("VM %s was never deleted", vm)
	}
}

// TestDrainByForce deletes a machine whose pods never end, and does not wait for them.
func TestDrainByForce(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "drain-force", "")
	s.workload()
	names := s.stand(1)
	s.podOn(names[0], "forever", neverEnds)
	s.remove("machines", names[0])
	s.says(names[0], "1 pod left, 1 ending")
	s.patch("machines", names[0], `{"metadata":{"labels":{"force-deletion":"true"}}}`)
	s.gone()
}

// TestDrainsDoNotHoldOthersUp has machines wait for pods that never end while others are made.
func TestDrainsDoNotHoldOthersUp(t *testing.T) {
	t.Parallel()
	const draining, fresh = 30, 10
	lab := startLab(t, "drains", func(o *harness.Options) { o.FleetFlags = "--concurrent-syncs=5" })
	s := newSpace(t, lab, "drains", "")
	s.workload()
	began := time.Now()
	s.deploy("idle", fresh)
	s.running("idle", fresh)
	onIdleFleet := time.Since(began)

	s.deploy("old", draining)
	s.running("old", draining)
	machines, err := s.machines(t.Context(), "old")
	s.must(err)
	for _, m := range machines {
		s.podOn(m.Labels[v1alpha1.LabelNode], m.Name, neverEnds)
	}
	s.remove("machinedeployments", "old")
	s.eventually("all of them are drained", func(ctx context.Context) error {
		machines, err := s.machines(ctx, "old")
		if err != nil {
			return err
		}
		var wrong complaints
		wrong.unless(len(machines) == draining, "there are %d machines", len(machines))
		for _, m := range machines {
			wrong.unless(strings.Contains(m.Status.LastOperation.Description, "1 ending"), "%s: %s", m.Name, m.Status.LastOperation.Description)
		}
		return wrong.err()
	})
	began = time.Now()
	s.deploy("new", fresh)
	s.running("new", fresh)
	if took := time.Since(began); took > 2*onIdleFleet+5*time.Second {
		s.Errorf("%d machines took %s while %d Nodes were drained, and %s before", fresh, took, draining, onIdleFleet)
	} else {
		s.Logf("%d machines took %s while %d Nodes were drained, and %s before", fresh, took, draining, onIdleFleet)
	}
	still, err := s.machines(t.Context(), "old")
	s.must(err)
	if len(still) != draining {
		s.Errorf("%d machines are left whose pods never end, want all %d", len(still), draining)
	}
	for _, m := range still {
		s.patch("machines", m.Name, `{"metadata":{"labels":{"force-deletion":"true"}}}`)
	}
	s.remove("machinedeployments", "new")
	s.remove("machinedeployments", "idle")
	s.gone()
}
