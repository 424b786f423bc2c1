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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// stand creates stand-alone machines, and returns their names when they run.
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

// TestDrainRespectsBudgets deletes two of three machines at once whose pods must not be evicted at the same time.
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
	position, err := s.lab.AuditEnd()
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
			s.Fatal("no pod of web is ready, and its PodDisruptionBudget requires one")
		}
		if len(machines) > 1 {
			return errors.Join(err, fmt.Errorf("there are %d: %s", len(machines), machines[0].Status.LastOperation.Description))
		}
		return err
	})
	requests, err := s.lab.Requests(position)
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
	s.emits(names[0], v1alpha1.EventDrained)

	// The last one cannot be drained while the PodDisruptionBudget exists: its pods can run on no other Node.
	s.remove("machines", names[2])
	s.describes(names[2], "held by PodDisruptionBudget "+s.name+"/web")
	s.must(s.lab.Target.PolicyV1().PodDisruptionBudgets(s.name).Delete(s.Context(), "web", metav1.DeleteOptions{}))
	s.gone()
}

// everywhere allows the pods that a ReplicaSet creates from now on to share Nodes, and to run on one more.
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

// emits waits for an Event on a machine.
func (s *space) emits(machine, reason string) {
	s.Helper()
	s.eventually(fmt.Sprintf("machine %s has the Event %s", machine, reason), func(ctx context.Context) error {
		reported, err := s.eventsOf(ctx, machine)
		if err == nil && !slices.Contains(reported, reason) {
			err = fmt.Errorf("it has %v", reported)
		}
		return err
	})
}

// eventsOf lists the reasons of a machine's Events.
func (s *space) eventsOf(ctx context.Context, machine string) (reasons []string, err error) {
	list, err := s.lab.Control.CoreV1().Events(s.name).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + machine})
	if err != nil {
		return nil, err
	}
	for _, e := range list.Items {
		reasons = append(reasons, e.Reason)
	}
	return reasons, nil
}

// lost waits until a machine is gone.
func (s *space) lost(machine string) {
	s.Helper()
	s.eventually("machine "+machine+" is gone", func(ctx context.Context) error {
		m, err := s.api().Machines(s.name).Get(ctx, machine, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("it is %q", m.Status.LastOperation.Description)
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// TestDrainIsForcedAtItsTimeout: PodDisruptionBudgets never allow an eviction, which is reported before it is overridden in the end.
// The Node has a real kubelet, where that is possible.
func TestDrainIsForcedAtItsTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 25 * time.Second
	boot := ""
	if harness.KubeletsWork(t) {
		boot = realKubelet
	}
	s := newSpace(t, shared(t), "drain-timeout", boot)
	s.workload()
	node := s.stand(1, func(m *v1alpha1.Machine) {
		m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineDrainTimeout: &metav1.Duration{Duration: timeout}}
	})[0]
	s.podOn(node, "plain", pause(), nil)
	s.podOn(node, "forever", forever(), neverEnds)
	s.ready("forever", 1)
	for _, app := range []string{"db", "stuck"} {
		s.spread(app, 1, []string{node})
		s.ready(app, 1)
		s.budget(app, app, 1, 1)
	}
	s.budget("loose", "stuck", 0, 1)
	vm := s.joined()[node]
	position, err := s.lab.AuditEnd()
	s.must(err)
	s.remove("machines", node)

	m := &v1alpha1.Machine{}
	s.eventually("the machine names the budgets", func(ctx context.Context) (err error) {
		m, err = s.api().Machines(s.name).Get(ctx, node, metav1.GetOptions{})
		for _, budget := range []string{"db", "stuck"} {
			text := fmt.Sprintf(" held by PodDisruptionBudget %s/%s, although all pods there are healthy: change what it allows", s.name, budget)
			if op := m.Status.LastOperation; err == nil && (op.State != v1alpha1.MachineStateFailed || !strings.Contains(op.Description, text)) {
				err = fmt.Errorf("it is %s %q", op.State, op.Description)
			}
		}
		return err
	})
	found, err := s.lab.Target.CoreV1().Nodes().Get(s.Context(), node, metav1.GetOptions{})
	s.must(err)
	if !found.Spec.Unschedulable || !slices.ContainsFunc(found.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.NodeTerminating && c.Status == corev1.ConditionTrue && c.Reason == v1alpha1.NodeReasonScaleDown
	}) {
		s.Errorf("unschedulable: %t, conditions %v", found.Spec.Unschedulable, found.Status.Conditions)
	}
	s.emits(node, v1alpha1.EventDrainBlocked)
	s.gone()
	s.emits(node, v1alpha1.EventDrainForced)
	if reported, err := s.eventsOf(s.Context(), node); err != nil || slices.Contains(reported, v1alpha1.EventDrained) {
		s.Errorf("want the Event of a forced drain, got %v (%v)", reported, err)
	}
	until := m.DeletionTimestamp.Add(timeout)
	s.deletedAfter(vm, until)
	s.podsDeletedAfter(position, until, "db-", "stuck-", "forever")
}

// podsDeletedAfter checks that the fleet has deleted the test's pods with these prefixes since the position, and that it has
// deleted, and not evicted, none before a time.
func (s *space) podsDeletedAfter(position harness.AuditPosition, early time.Time, prefixes ...string) {
	s.Helper()
	requests, err := s.lab.Requests(position)
	s.must(err)
	missing := slices.Clone(prefixes)
	for _, r := range requests {
		if !r.IsFleet() || r.Namespace != s.name || r.Resource != "pods" || r.Verb != "delete" {
			continue
		}
		missing = slices.DeleteFunc(missing, func(prefix string) bool { return strings.HasPrefix(r.Name, prefix) })
		if r.At.Before(early) {
			s.Errorf("pod %s was deleted %s before its time", r.Name, early.Sub(r.At))
		}
	}
	if len(missing) > 0 {
		s.Errorf("no pods %v were deleted", missing)
	}
}

// deletedAfter checks that the cloud was not called to delete a VM before a time.
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
	s.podOn(names[0], "forever", pause(), neverEnds)
	s.remove("machines", names[0])
	s.describes(names[0], "1 pod left, 1 ending")
	s.patch("machines", names[0], `{"metadata":{"labels":{"force-deletion":"true"}}}`)
	s.gone()
}

// TestDrainsDoNotDelayOthers creates machines while others wait for pods that never end: six times as many as there are workers, so that
// drains that kept their workers would delay the new machines for ever.
func TestDrainsDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	const draining, fresh = 30, 10
	lab := startLab(t, "drains", func(o *harness.Options) { o.FleetFlags = "--concurrent-syncs=5" })
	s := newSpace(t, lab, "drains", "")
	s.workload()
	s.must(held(t.Context(), lab)) // a new fleet holds no slots yet
	began := time.Now()
	s.deploy("idle", fresh)
	s.running("idle", fresh)
	onIdleFleet := time.Since(began)

	s.deploy("old", draining)
	s.running("old", draining)
	machines, err := s.machines(t.Context(), "old")
	s.must(err)
	for _, m := range machines {
		s.podOn(m.Labels[v1alpha1.LabelNode], m.Name, pause(), neverEnds)
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
	s.Logf("%d machines took %s while %d Nodes were drained, and %s before", fresh, time.Since(began), draining, onIdleFleet)
	still, err := s.machines(t.Context(), "old")
	s.must(err)
	if len(still) != draining {
		s.Errorf("of the machines whose pods never end %d are left, want all %d", len(still), draining)
	}
	for _, m := range still {
		s.patch("machines", m.Name, `{"metadata":{"labels":{"force-deletion":"true"}}}`)
	}
	s.remove("machinedeployments", "new")
	s.remove("machinedeployments", "idle")
	s.gone()
}
