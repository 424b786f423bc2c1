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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// stand creates stand-alone machines, and returns their names when they run.
func (s *space) stand(n int) []string {
	s.Helper()
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%d", s.name, i))
		s.createMachine(names[i])
	}
	s.running("", n)
	return names
}

// TestDrain deletes two of three machines at once whose pods must not be evicted at the same time,
// and then the last one, where a PodDisruptionBudget never allows an eviction: that is reported,
// and overridden in the end.
func TestDrain(t *testing.T) {
	t.Parallel()
	const timeout = 25 * time.Second
	s := newSpace(t, shared(t), "drain", "")
	s.workload()
	names, last := s.stand(2), s.name+"-last"
	s.createMachine(last, func(m *v1alpha1.Machine) {
		m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineDrainTimeout: &metav1.Duration{Duration: timeout}}
	})
	s.running("", 3)
	vm := s.joined()[last]
	s.spread("web", 2, names)
	s.spread("other", 2, names)
	s.ready("web", 2)
	s.ready("other", 2)
	s.budget("web", "web", 1, 2)
	everywhere(s, "web", last)
	everywhere(s, "other", last)
	position, err := s.lab.AuditEnd()
	s.must(err)

	s.remove("machines", names[0])
	s.remove("machines", names[1])
	s.eventually("both machines are gone", func(ctx context.Context) error {
		machines, err1 := s.machines(ctx, "")
		pods, err2 := s.podsOf(ctx, "web")
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if len(pods) == 0 {
			s.Fatal("no pod of web is ready, and its PodDisruptionBudget requires one")
		}
		if len(machines) > 1 {
			return fmt.Errorf("there are %d: %s", len(machines), machines[0].Status.LastOperation.Description)
		}
		return nil
	})
	evicted, deleted := takenFrom(s, position)
	if evicted < 4 || len(deleted) > 0 {
		s.Errorf("%d pods were evicted and %v deleted, want all 4 evicted", evicted, deleted)
	}
	s.emits(names[0], v1alpha1.EventDrained)

	s.podOn(last, "forever", pause(), neverEnds)
	s.spread("stuck", 1, []string{last})
	s.ready("stuck", 1)
	s.budget("stuck", "stuck", 1, 1)
	s.remove("machines", last)
	s.describes(last, " held by PodDisruptionBudget "+s.name+"/stuck, although all pods there are healthy: change what it allows")
	s.emits(last, v1alpha1.EventDrainBlocked)
	m, err := s.api().Machines(s.name).Get(s.Context(), last, metav1.GetOptions{})
	s.must(err)
	node, err := s.lab.Target.CoreV1().Nodes().Get(s.Context(), last, metav1.GetOptions{})
	s.must(err)
	if !node.Spec.Unschedulable || !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.NodeTerminating && c.Status == corev1.ConditionTrue && c.Reason == v1alpha1.NodeReasonScaleDown
	}) {
		s.Errorf("unschedulable: %t, conditions %v", node.Spec.Unschedulable, node.Status.Conditions)
	}
	s.gone()
	s.emits(last, v1alpha1.EventDrainForced)
	_, deleted = takenFrom(s, position)
	for _, pod := range []string{"stuck-", "forever"} {
		if !slices.ContainsFunc(deleted, func(name string) bool { return strings.HasPrefix(name, pod) }) {
			s.Errorf("the forced drain has deleted %v, want %s", deleted, pod)
		}
	}
	calls, err := s.lab.Cloud.Calls()
	s.must(err)
	forced := m.DeletionTimestamp.Add(timeout)
	for _, c := range calls {
		if c.Operation == cloudapi.OpDeleteInstance && c.Instance == vm && c.Start.Before(forced) {
			s.Errorf("the VM was deleted at %s, before the drain was forced at %s", c.Start, forced)
		}
	}
}

// takenFrom counts the pods of the namespace that the fleet has evicted since the position, and
// names those that it has deleted.
func takenFrom(s *space, position harness.AuditPosition) (evicted int, deleted []string) {
	s.Helper()
	requests, err := s.lab.Requests(position)
	s.must(err)
	for _, r := range requests {
		switch {
		case !r.IsFleet() || r.Namespace != s.name || r.Resource != "pods":
		case r.Verb == "delete":
			deleted = append(deleted, r.Name)
		case r.Subresource == "eviction" && r.Code == 201:
			evicted++
		}
	}
	return evicted, deleted
}

// everywhere allows the pods that a ReplicaSet creates from now on to share Nodes, and to run on
// one more.
func everywhere(s *space, app, node string) {
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

// describes waits until a machine's last operation contains a text.
func (s *space) describes(machine, text string) {
	s.Helper()
	s.eventually(fmt.Sprintf("the last operation of machine %s contains %q", machine, text), func(ctx context.Context) error {
		m, err := s.api().Machines(s.name).Get(ctx, machine, metav1.GetOptions{})
		if err == nil && !strings.Contains(m.Status.LastOperation.Description, text) {
			err = fmt.Errorf("it is %q", m.Status.LastOperation.Description)
		}
		return err
	})
}

// emits waits for an Event on an object of the namespace.
func (s *space) emits(name, reason string) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s has the Event %s", name, reason), func(ctx context.Context) error {
		list, err := s.lab.Control.CoreV1().Events(s.name).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		var reasons []string
		for _, e := range list.Items {
			reasons = append(reasons, e.Reason)
		}
		if err == nil && !slices.Contains(reasons, reason) {
			err = fmt.Errorf("it has %v", reasons)
		}
		return err
	})
}
