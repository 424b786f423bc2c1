//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// openTo is the label of the Nodes that a test lets its pods run on; the value is the test's namespace.
const openTo = "e2e.example.com/open-to"

// open lets the test's pods run on a Node from now on.
func (s *space) open(node string) {
	s.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, openTo, s.name)
	_, err := s.lab.Target.CoreV1().Nodes().Patch(s.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	s.must(err)
}

// priority makes a PriorityClass, and returns its name.
func (s *space) priority(value int32) string {
	s.Helper()
	classes := s.lab.Target.SchedulingV1().PriorityClasses()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", s.name, value)}, Value: value}
	_, err := classes.Create(s.Context(), class, metav1.CreateOptions{})
	s.must(err)
	s.Cleanup(func() {
		err := classes.Delete(context.WithoutCancel(s.Context()), class.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			s.Error(err)
		}
	})
	return class.Name
}

// replicated makes a ReplicaSet whose pods run on any open Node.
func (s *space) replicated(name string, replicas int32, priority string) {
	s.Helper()
	labels := map[string]string{"app": name}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.ReplicaSetSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pause()},
	}}
	set.Spec.Template.Spec.NodeSelector = map[string]string{openTo: s.name}
	set.Spec.Template.Spec.PriorityClassName = priority
	_, err := s.lab.Target.AppsV1().ReplicaSets(s.name).Create(s.Context(), set, metav1.CreateOptions{})
	s.must(err)
}

// TestRealKubeletDrain drains Nodes with real kubelets: first one whose pods may go, by and by, and then the one that they
// have gone to, some of whose pods may never go.
func TestRealKubeletDrain(t *testing.T) {
	t.Parallel()
	if !kubeletsWork(t) {
		t.Skip("the lab boots simulated Nodes only")
	}
	const timeout = 20 * time.Second
	s := newSpace(t, shared(t), "kubelet-drain", realKubelet)
	s.workload()
	names := s.stand(2, func(m *v1alpha1.Machine) {
		if m.Name == s.name+"-1" {
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineDrainTimeout: &metav1.Duration{Duration: timeout}}
		}
	})
	vms := s.joined()
	s.open(names[0])
	apps := map[string]int32{"plain": 1, "both": 2, "web": 3, "vital": 1} // by name they come in another order than by priority
	priorities := map[string]string{"web": s.priority(1000), "vital": s.priority(2000)}
	for app, replicas := range apps {
		s.replicated(app, replicas, priorities[app])
	}
	for app, replicas := range apps {
		s.ready(app, int(replicas))
	}
	s.budget("web", "web", 2, 3)
	s.budget("one", "both", 1, 2)
	s.budget("two", "both", 1, 2)

	s.drainsInTurns(names[0], names[1], apps)
	s.drainsByForce(names[1], vms[names[1]], timeout)
}

// drainsInTurns deletes the machine of a Node with pods that are guarded by budgets, and lets them run on another one.
func (s *space) drainsInTurns(from, to string, apps map[string]int32) {
	s.Helper()
	mark, err := s.lab.MarkAudit()
	s.must(err)
	film := s.record()
	s.remove("machines", from)

	// Nowhere else can a pod run yet, so that each budget lets one go.
	held := map[string][]string{"web": nil, "both": nil}
	for app := range held {
		s.ready(app, int(apps[app])-1)
		pods, err := s.podsOf(s.Context(), app)
		s.must(err)
		for _, p := range pods {
			held[app] = append(held[app], s.name+"/"+p.Name)
		}
		slices.Sort(held[app])
	}
	s.says(from, fmt.Sprintf("Draining Node %s: 3 pods left; %s held by PodDisruptionBudget %s/web; %s held by PodDisruptionBudgets %s/one and %s/two; what is left",
		from, strings.Join(held["web"], " and "), s.name, held["both"][0], s.name, s.name))
	m, err := s.api().Machines(s.name).Get(s.Context(), from, metav1.GetOptions{})
	s.must(err)
	if op := m.Status.LastOperation; op.State != v1alpha1.MachineStateProcessing || op.Type != v1alpha1.MachineOperationDelete {
		s.Errorf("last operation %+v, want a delete that goes on", op)
	}

	s.open(to)
	s.eventually("the machine is gone", func(ctx context.Context) error {
		m, err := s.api().Machines(s.name).Get(ctx, from, metav1.GetOptions{})
		if err == nil {
			return errors.New(m.Status.LastOperation.Description)
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	s.tells(from, v1alpha1.EventDrained)
	for app, replicas := range apps {
		s.ready(app, int(replicas))
	}
	s.inOrder(film, from, apps)
	s.neverForced(film, from)
	requests, err := s.lab.Requests(mark)
	s.must(err)
	for _, r := range requests {
		if r.IsFleet() && r.Namespace == s.name && r.Verb == "delete" && r.Resource == "pods" && !strings.HasPrefix(r.Name, "both-") {
			s.Errorf("pod %s was deleted, and not evicted", r.Name)
		}
	}
}

// inOrder makes sure of what a recording shows of a drain: that pods which nothing held went by priority, that budgets were
// kept at any time, and that the next pod went soon after its budget allowed it.
func (s *space) inOrder(film *recording, from string, apps map[string]int32) {
	s.Helper()
	const soon = 10 * time.Second // 2 s is how long a pod is left alone that was refused
	atLeast := map[string]int{"web": 2, "both": 1}
	moments, err := film.play()
	s.must(err)
	pods := map[types.UID]*corev1.Pod{}
	complete := map[string]time.Time{} // since when all pods of an app are ready
	var went []*corev1.Pod
	for _, m := range moments {
		pod := m.pod()
		if pod == nil {
			continue
		}
		app, before := pod.Labels["app"], pods[pod.UID]
		if pod.DeletionTimestamp != nil && pod.Spec.NodeName == from && before != nil && before.DeletionTimestamp == nil {
			if since := complete[app]; atLeast[app] > 0 && m.heard.Sub(since) > soon && slices.ContainsFunc(went, func(p *corev1.Pod) bool { return p.Labels["app"] == app }) {
				s.Errorf("pod %s went %s after all of its budget were ready", pod.Name, m.heard.Sub(since))
			}
			went = append(went, pod)
		}
		pods[pod.UID] = pod
		if m.gone {
			delete(pods, pod.UID)
		}
		ready := 0
		for _, p := range pods {
			if p.Labels["app"] == app && isReady(p) {
				ready++
			}
		}
		if ready < atLeast[app] && !m.listed {
			s.Errorf("at revision %d %d pods of %s were ready, and its budget wants %d", m.revision, ready, app, atLeast[app])
		}
		if was := complete[app]; ready < int(apps[app]) {
			complete[app] = time.Time{}
		} else if was.IsZero() {
			complete[app] = m.heard
		}
	}
	var first []*corev1.Pod // of each app
	for _, p := range went {
		if !slices.ContainsFunc(first, func(f *corev1.Pod) bool { return f.Labels["app"] == p.Labels["app"] }) {
			first = append(first, p)
		}
	}
	if len(went) != 7 || !slices.IsSortedFunc(first, func(a, b *corev1.Pod) int { return cmp.Compare(*b.Spec.Priority, *a.Spec.Priority) }) {
		s.Errorf("want all 7 pods to have gone, the first ones by priority; got %v", names(went))
	}
}

func names(pods []*corev1.Pod) (all []string) {
	for _, p := range pods {
		all = append(all, p.Name)
	}
	return all
}

// drainsByForce deletes the machine of a Node with pods that must not go: one with a budget that never lets it, and one
// that has such a budget beside another. Pods that may go in turns have nowhere to go to.
func (s *space) drainsByForce(node, vm string, timeout time.Duration) {
	s.Helper()
	for _, app := range []string{"db", "stuck"} {
		s.replicated(app, 1, "")
		s.ready(app, 1)
		s.budget(app, app, 1, 1)
	}
	s.budget("loose", "stuck", 0, 1)
	mark, err := s.lab.MarkAudit()
	s.must(err)
	film := s.record()
	s.remove("machines", node)
	deleted := time.Now()

	const stuck = ", although all pods there are healthy: change what it allows"
	var told moment
	s.eventually("the machine names the budgets", func(context.Context) error {
		moments, err := film.play()
		if err != nil {
			return err
		}
		last := "nothing"
		for _, told = range moments {
			if m := told.machine(); m != nil && m.Name == node {
				op := m.Status.LastOperation
				last = fmt.Sprintf("%s %s: %s", op.Type, op.State, op.Description)
				if op.State == v1alpha1.MachineStateFailed && op.Type == v1alpha1.MachineOperationDelete &&
					strings.Contains(last, "held by PodDisruptionBudget "+s.name+"/db"+stuck) &&
					strings.Contains(last, "held by PodDisruptionBudget "+s.name+"/stuck"+stuck) {
					return nil
				}
			}
		}
		return errors.New("it says " + last)
	})
	if took := told.heard.Sub(deleted); took > 10*time.Second {
		s.Errorf("it names the budgets after %s", took)
	} else {
		s.Logf("it names the budgets after %s", took)
	}
	s.tells(node, v1alpha1.EventDrainBlocked)
	s.gone()
	s.tells(node, v1alpha1.EventDrainForced)

	until := told.machine().DeletionTimestamp.Add(timeout)
	s.deletedAfter(vm, until)
	s.neverSucceeds(film, node)
	requests, err := s.lab.Requests(mark)
	s.must(err)
	byForce := 0
	for _, r := range requests {
		if r.IsFleet() && r.Namespace == s.name && r.Resource == "pods" && r.Verb == "delete" && !strings.HasPrefix(r.Name, "both-") {
			byForce++
			if r.At.Before(until) {
				s.Errorf("pod %s was deleted %s before its time", r.Name, until.Sub(r.At))
			}
		}
	}
	if byForce != 4 {
		s.Errorf("%d pods were deleted, want those of db and stuck, and two of web", byForce)
	}
}

// neverSucceeds makes sure that nobody was ever told that the drain of a machine's Node had come to a good end.
func (s *space) neverSucceeds(film *recording, machine string) {
	s.Helper()
	moments, err := film.play()
	s.must(err)
	for _, moment := range moments {
		m := moment.machine()
		if m == nil || m.Name != machine {
			continue
		}
		op := m.Status.LastOperation
		if strings.Contains(op.Description, "is drained") || op.Type == v1alpha1.MachineOperationDelete && op.State == v1alpha1.MachineStateSuccessful {
			s.Errorf("the machine says %s %s: %s", op.Type, op.State, op.Description)
		}
	}
	list, err := s.lab.Control.CoreV1().Events(s.name).List(s.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + machine})
	s.must(err)
	for _, e := range list.Items {
		if e.Reason == v1alpha1.EventDrained {
			s.Errorf("Event %s: %s", e.Reason, e.Message)
		}
	}
}
