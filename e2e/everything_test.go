//go:build e2e

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// record has TestEverythingAtOnce write what it has seen.
var record = flag.Bool("record", false, "have TestEverythingAtOnce write docs/operations/recording.md and the pictures of the page")

const (
	// deadZone is the zone that fails, and tooLarge the type of VMs that the cloud has none of.
	deadZone, tooLarge = "sim-1b", "large-32"
	// callsHang has the cloud answer no call that creates a VM in the dead zone, whose VMs do not
	// report any more.
	callsHang = `{"failedZones":["` + deadZone + `"],"faults":[{"zones":["` + deadZone +
		`"],"operations":["CreateInstance"],"kind":"timeout-before","hold":"5s","rate":1}]}`
)

// everything is a landscape in which everything happens at once, and lasts until end.
type everything struct {
	*space // the real target cluster

	// well is a target cluster in which nothing is wrong, and broken one that does not answer.
	well, broken *space
	// drained is the machine whose drain is blocked, lost one of the dead zone, refused one that the
	// cloud has no room for, and wellOne one of the cluster without trouble.
	drained, lost, refused, wellOne string
	// moving is the slot that is handed over, from and to which replica, while a request is stopped.
	moving   int
	from, to string
	stopped  *harness.FaultPoint
	recorder *recorder
}

// TestEverythingAtOnce: in a landscape with rollouts, of which one goes on and two are stalled, a
// drain that a PodDisruptionBudget blocks, a dead zone with an open circuit breaker, a slot that is
// handed over, a replica that has started and one that has left, and a target cluster that does not
// answer, all verbs of kubectl mcf and the page show what is the case. When the causes are gone,
// all of it ends.
func TestEverythingAtOnce(t *testing.T) {
	w := newEverything(t)
	w.begin()
	for _, look := range []func(){w.read, w.write, w.page} {
		w.goesOn()
		look()
	}
	w.plans()
	w.holds() // what was read was there all the time
	w.end()
	w.recorder.save()
}

// newEverything starts the landscape, in which nothing is wrong.
func newEverything(t *testing.T) *everything {
	t.Helper()
	lab := startLab(t, "everything", func(o *harness.Options) {
		o.Light, o.Replicas, o.CloudsimFlags = 2, 3, "--boot-time=3s"
		// What is in flight is stopped for as long as the test looks, and a rollout of 20 machines takes
		// longer.
		o.FleetFlags = "--hand-over-timeout=1h --count-min-ready-seconds"
	})
	members, err := lab.Members()
	if err != nil {
		t.Fatal(err)
	}
	spaces := make([]*space, 0, len(members))
	for _, m := range members {
		of, _, err := lab.Of(m)
		if err != nil {
			t.Fatal(err)
		}
		spaces = append(spaces, newSpaceBy(t, of, m.Name, func(context.Context, string) error { return nil }))
	}
	w := &everything{space: spaces[0], well: spaces[1], broken: spaces[2], recorder: newRecorder(t, lab)}
	w.class("zone-b", fmt.Sprintf(`{"zone":%q,"instanceType":"standard-4"}`, deadZone))
	w.class("large", fmt.Sprintf(`{"zone":"sim-1a","instanceType":%q}`, tooLarge))
	w.pool(w.space, "api", 20, func(d *v1alpha1.MachineDeployment) { d.Spec.MinReadySeconds = 30 })
	w.pool(w.space, "cache", 2)
	w.pool(w.space, "edge", 4, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.Class.Name = "zone-b"
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineHealthTimeout: &metav1.Duration{Duration: time.Minute},
		}
	})
	w.pool(w.space, "web", 3)
	w.pool(w.well, "batch", 40)
	w.pool(w.broken, "remote", 3)
	w.running("", 29)
	w.well.running("", 40)
	w.broken.running("", 3)
	return w
}

// class creates a class of the real target cluster, with the Secret of the one that the lab has
// created.
func (w *everything) class(name, spec string) {
	w.Helper()
	class := harness.Class(w.name, spec)
	class.Name, class.SecretRef.Name = name, "small"
	_, err := w.api().MachineClasses(w.name).Create(w.Context(), class, metav1.CreateOptions{})
	w.must(err)
}

func (w *everything) pool(in *space, name string, replicas int32, change ...func(*v1alpha1.MachineDeployment)) {
	w.Helper()
	small := func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "small" }
	in.deploy(name, replicas, slices.Concat([]func(*v1alpha1.MachineDeployment){small}, change)...)
}

// begin has everything happen, each until its cause ends.
func (w *everything) begin() {
	w.Helper()
	ctx := w.Context()
	w.must(w.lab.Scale(ctx, 5))
	w.must(w.lab.WaitHeld(ctx, w.lab.SlotCount))
	w.must(w.lab.WaitAtRest(ctx))
	// Each has a separate replica, so that the leader has no reason to move one.
	for i, name := range []string{w.name, w.well.name, w.broken.name} {
		replica := []string{"fleet-0", "fleet-1", "fleet-3"}[i]
		w.says(0, fmt.Sprintf("move %d %s", w.slotOf(name), replica), "is held by "+replica)
	}

	w.protect("web")
	w.must(w.lab.Cloud.Set(ctx, callsHang))
	w.must(w.lab.Cloud.Set(ctx, fmt.Sprintf(`{"quotas":{"instancesByType":{%q:0}}}`, tooLarge)))
	w.must(w.lab.SetFault(ctx, w.broken.name, harness.LinkServer, harness.Refuse()))
	w.says(0, "rollout restart web -n cluster-1", "restarted")
	w.patch("machinedeployments", "cache", `{"spec":{"template":{"spec":{"class":{"name":"large"}}}}}`)
	w.scale("edge", 5)
	w.broken.lasting("the target cluster is not available", func(ctx context.Context) error {
		return w.conditioned(ctx, w.broken, "remote", v1alpha1.MachineDeploymentValid, metav1.ConditionFalse, v1alpha1.ReasonTargetUnavailable)
	})
	w.handOverStopped()
	w.must(w.lab.Do(ctx, "fleet-2", harness.Stop))
	w.must(w.lab.WaitHeld(ctx, w.lab.SlotCount))
	w.holds()
}

// goesOn waits until api is rolled out, which takes longer than to look. If that has ended on a
// slow computer it is rolled out again.
func (w *everything) goesOn() {
	w.Helper()
	isUnderWay := func(ctx context.Context) error {
		return w.conditioned(ctx, w.space, "api", v1alpha1.MachineDeploymentProgressing, metav1.ConditionTrue, "MachineSetUpdated")
	}
	if isUnderWay(w.Context()) == nil {
		return
	}
	w.says(0, "rollout restart api -n cluster-1", "restarted")
	w.lasting("the rollout of api goes on", isUnderWay)
}

// protect has a pod on each machine of a pool, none of which may be evicted.
func (w *everything) protect(pool string) {
	w.Helper()
	shop := *w.space
	shop.name = "shop"
	shop.workload()
	machines, err := w.machines(w.Context(), pool)
	w.must(err)
	for i, m := range machines {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("db-", i), Labels: map[string]string{"app": "db"}}, Spec: pause()}
		pod.Spec.NodeName = m.Labels[v1alpha1.LabelNode]
		_, err := w.lab.Target.CoreV1().Pods(shop.name).Create(w.Context(), pod, metav1.CreateOptions{})
		w.must(err)
	}
	shop.budget("db", "db", int32(len(machines)), int32(len(machines)))
}

// handOverStopped has the slot of the target cluster without trouble handed over, which waits for a
// request that is stopped.
func (w *everything) handOverStopped() {
	w.Helper()
	var err error
	w.moving = w.slotOf(w.well.name)
	w.stopped, err = w.lab.StopNext(w.Context(), "/namespaces/"+w.well.name+"/machinesets")
	w.must(err)
	w.says(0, "rollout restart batch -n light-1", "restarted")
	at, err := w.stopped.Wait(w.Context())
	w.must(err)
	w.from, w.to = at.Replica, "fleet-4"
	w.says(0, fmt.Sprintf("move %d %s --wait=false", w.moving, w.to), "is assigned to "+w.to)
	w.eventually("the slot is handed over", func(ctx context.Context) error {
		view, err := w.lab.Slots(ctx, w.from)
		if here, holds := view.Holds(w.moving); err == nil && (!holds || !here.Stopping) {
			err = fmt.Errorf("%s has %+v", w.from, here)
		}
		return err
	})
}

func (w *everything) slotOf(namespace string) int {
	w.Helper()
	spread, err := assignment.NewSpread(w.lab.SlotCount, assignment.ByNamespace)
	w.must(err)
	return spread.Of(namespace, "")
}

// conditioned returns an error unless a MachineDeployment has a condition.
func (w *everything) conditioned(
	ctx context.Context, in *space, name string, kind v1alpha1.MachineDeploymentConditionType, status metav1.ConditionStatus, reason string,
) error {
	d, err := in.api().MachineDeployments(in.name).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range d.Status.Conditions {
		if c.Type == kind && string(c.Status) == string(status) && c.Reason == reason {
			return nil
		}
	}
	return fmt.Errorf("%s has the conditions %+v", name, d.Status.Conditions)
}

// holds waits until everything is the case, and names the machines that are concerned.
func (w *everything) holds() {
	w.Helper()
	w.lasting("everything happens at once", func(ctx context.Context) error {
		var errs []error
		for _, want := range []struct {
			in           *space
			pool, reason string
			kind         v1alpha1.MachineDeploymentConditionType
			status       metav1.ConditionStatus
		}{
			{w.space, "web", "MachinesTerminating", v1alpha1.MachineDeploymentRolloutStalled, metav1.ConditionTrue},
			{w.space, "cache", "MachineCreateFailed", v1alpha1.MachineDeploymentRolloutStalled, metav1.ConditionTrue},
			{w.space, "edge", "ZoneNotReady", v1alpha1.MachineDeploymentCircuitBreakerOpen, metav1.ConditionTrue},
			{w.broken, "remote", v1alpha1.ReasonTargetUnavailable, v1alpha1.MachineDeploymentValid, metav1.ConditionFalse},
		} {
			errs = append(errs, w.conditioned(ctx, want.in, want.pool, want.kind, want.status, want.reason))
		}
		errs = append(errs, w.machinesHold(ctx))
		view, err := w.lab.Slots(ctx, w.from)
		if _, holds := view.Holds(w.moving); !holds {
			err = errors.Join(err, fmt.Errorf("%s does not hold slot %d any more", w.from, w.moving))
		}
		return errors.Join(append(errs, err)...)
	})
}

// machinesHold finds the machines that the test asks about.
func (w *everything) machinesHold(ctx context.Context) error {
	machines, err1 := w.machines(ctx, "")
	ofWell, err2 := w.well.machines(ctx, "")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	w.drained, w.lost, w.refused, w.wellOne = "", "", "", ofWell[0].Name
	unknown := 0
	for _, m := range machines {
		switch {
		case m.DeletionTimestamp != nil && strings.Contains(m.Status.LastOperation.Description, "held by PodDisruptionBudget shop/db"):
			w.drained = m.Name
		case m.Status.CurrentStatus.Phase == v1alpha1.MachineUnknown:
			w.lost = m.Name
			unknown++
		case m.Status.CurrentStatus.Phase == v1alpha1.MachineCrashLoopBackOff && m.Spec.Class.Name == "large":
			w.refused = m.Name
		}
	}
	if w.drained == "" || w.refused == "" || unknown != 4 {
		return fmt.Errorf("drained: %q, refused by the cloud: %q, %d machines are Unknown", w.drained, w.refused, unknown)
	}
	return nil
}

// end ends the causes, and waits until nothing of it is left.
func (w *everything) end() {
	w.Helper()
	ctx := w.Context()
	w.starts("fleet-2") // fault points end on all replicas
	w.must(w.stopped.Release(ctx))
	w.records("When the causes are gone, the request is answered that the hand-over has waited for:", 0,
		fmt.Sprintf("move %d %s", w.moving, w.to), "is held by "+w.to)
	w.says(0, "release -n light-1", "are not held")
	w.says(0, "rollout undo batch -n light-1", "is rolled back")
	w.must(w.lab.SetFault(ctx, w.broken.name, harness.LinkServer, harness.Fault{}))
	w.must(w.lab.Cloud.Set(ctx, `{"failedZones":null,"faults":null,"quotas":null}`))
	w.must(w.lab.Target.PolicyV1().PodDisruptionBudgets("shop").Delete(ctx, "db", metav1.DeleteOptions{}))
	w.records("", 0, "rollout undo cache -n cluster-1", "is rolled back to revision 1")
	w.patch("machinedeployments", "api", `{"spec":{"minReadySeconds":0}}`)
	for _, pool := range []string{"api", "cache", "web"} {
		w.says(0, "rollout status "+pool+" -n cluster-1", "is rolled out")
	}
	w.says(0, "rollout status batch -n light-1", "is rolled out")
	w.says(0, "rollout status remote -n light-2", "is rolled out")
	w.eventually("machine "+w.drained+" is gone", func(ctx context.Context) error {
		_, err := w.api().Machines(w.name).Get(ctx, w.drained, metav1.GetOptions{})
		if err == nil {
			return errors.New("it is there")
		}
		return nil
	})
	w.says(0, "why "+w.drained+" -n cluster-1", "It does not exist any more", "RolledOut")
	w.running("edge", 5)
	w.says(0, "status -n light-2 --target-kubeconfig targets/light-2.kubeconfig", "3 Machines (3 Running)")
	w.says(0, "status -n light-1 --target-kubeconfig targets/light-1.kubeconfig", "40 Machines (40 Running)")
}
