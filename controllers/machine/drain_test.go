package machine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/targettest"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// targetBench is a controller with nothing but a target cluster, and a pass over the machine of
// that UID.
func targetBench(t *testing.T, cluster *apiserver.Server, uid types.UID) (*Controller, *pass) {
	t.Helper()
	wall := clocktesting.NewFakeClock(now)
	c := &Controller{memory: newMachineMemory(), cfg: Config{
		Clock: wall, Deletions: deletion.NewRecorder(wall, nil, nil), Events: &apitest.EventLog{},
		Limits: lifecycle.Limits{CreationTimeout: 20 * time.Minute},
	}}
	if err := c.addNodes(wall, func(types.NamespacedName) {}); err != nil {
		t.Fatal(err)
	}
	p := &pass{cluster: target.New(cluster.Core())}
	p.world.Now = now
	p.world.Machine = &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "n", UID: uid}}
	return c, p
}

// drainBench is a controller with nothing but a target cluster, and a pass over a machine that was
// deleted just now.
func drainBench(t *testing.T, objects ...apiserver.Typed) (*Controller, *pass, *apiserver.Server) {
	t.Helper()
	cluster := apiserver.Recording(objects...)
	node := apiserver.Add(cluster, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "m", UID: "node", Annotations: map[string]string{v1alpha1.AnnotationMachine: "n/m/u"},
	}})
	c, p := targetBench(t, cluster, "u")
	settings := drain.Settings{
		Timeout: time.Hour, MaxEvictRetries: 180, DetachTimeout: time.Minute, ReattachTimeout: time.Minute, VolumeParallelism: 4,
	}
	c.cfg.Limits.Drain = settings
	if err := c.addNodes(c.cfg.Clock, func(types.NamespacedName) {}); err != nil {
		t.Fatal(err)
	}
	p.world.Machine.DeletionTimestamp = &metav1.Time{Time: now}
	p.world.Machine.Labels = map[string]string{v1alpha1.LabelNode: "m"}
	p.world.Node = lifecycle.NodeFact{State: lifecycle.NodePresent, Node: node}
	return c, p, cluster
}

// The Node is deleted between the read and the cordon, and the Node of another VM gets its name.
func TestTheNodeOfAnotherVMIsNotDrained(t *testing.T) {
	c, p, cluster := drainBench(t, targettest.PodOn("m", "web", ""))
	p.world.Machine.Spec.ProviderID = "test:///ours"
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "other"}, Spec: corev1.NodeSpec{ProviderID: "test:///theirs"}}
	apiserver.Add(cluster, other)
	if err := c.drains.forDeletion(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if got, want := cluster.Log(), []string{"patch nodes", "get nodes"}; !slices.Equal(got, want) {
		t.Errorf("requests %q, want %q", got, want)
	}
	if p.world.Node.Node.UID != "other" || p.world.Drain.State != drain.Unknown {
		t.Errorf("the drain of Node %s is %+v; want the other Node, and nothing decided of it", p.world.Node.Node.UID, p.world.Drain)
	}
	p.world.Machine.Status.CurrentStatus.Phase = v1alpha1.MachineTerminating
	if v := lifecycle.Decide(p.world); v.Do == lifecycle.DrainNode {
		t.Error("then it is drained all the same")
	}
}

func TestNodeShowsThatItsMachineIsDeleted(t *testing.T) {
	c, p, cluster := drainBench(t)
	p.world.Machine.Status.CurrentStatus.Phase = v1alpha1.MachineFailed
	for range 2 {
		if err := c.drains.setTerminating(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := cluster.Log(), []string{"patch nodes", "list pods", "patch nodes/status"}; !slices.Equal(got, want) {
		t.Errorf("requests %q, want %q", got, want)
	}
	conditions := p.world.Node.Node.Status.Conditions
	if len(conditions) != 1 || conditions[0].Type != "Terminating" || conditions[0].Status != "True" || conditions[0].Reason != "Unhealthy" {
		t.Errorf("conditions %+v", conditions)
	}
}

func TestAMachineWithoutTheNameOfItsNodeFindsIt(t *testing.T) {
	labels := map[string]string{v1alpha1.LabelMachineName: "m"}
	ours := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ours", Labels: labels}, Spec: corev1.NodeSpec{ProviderID: "cloud:///zone/i-1"}}
	older := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "older", Labels: labels}, Spec: corev1.NodeSpec{ProviderID: "cloud:///zone/i-0"}}
	c, p, _ := drainBench(t, ours, older)
	p.world.Machine.Labels, p.world.Machine.Spec.ProviderID = nil, "cloud:///zone/i-1"
	if err := c.nodes.find(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if n := p.world.Node; n.State != lifecycle.NodePresent || n.Node.Name != "ours" {
		t.Errorf("found %+v", n)
	}
}

// A short failure is retried like any other; after some seconds the machine reports it.
func TestUnreachableTargetIsReported(t *testing.T) {
	c, p, cluster := drainBench(t)
	wall := clocktesting.NewFakeClock(now)
	c.cfg.Clock = wall
	if err := c.addNodes(wall, func(types.NamespacedName) {}); err != nil {
		t.Fatal(err)
	}
	mend := refuses(cluster, "*", errors.New("no route to host"))
	drainNow := func() error {
		p.world.Drain = drain.Report{}
		return c.act(t.Context(), p, lifecycle.Verdict{Do: lifecycle.DrainNode})
	}
	if err := drainNow(); err == nil {
		t.Errorf("at first: report %+v, want an error", p.world.Drain)
	}
	wall.Step(reportAfter)
	if err := drainNow(); err != nil || !p.world.Drain.IsStuck || !strings.Contains(p.world.Drain.Text, "no route to host") ||
		p.world.Drain.Wake == 0 {
		t.Errorf("after a while: report %+v, error %v", p.world.Drain, err)
	}
	mend()
	if err := drainNow(); err != nil || p.world.Drain.State != drain.Drained {
		t.Errorf("when it is back: report %+v, error %v", p.world.Drain, err)
	}
}

func TestAForcedDrainEndsAlsoWhenTheTargetDoesNotAnswer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(m *v1alpha1.Machine)
		want   drain.State
	}{
		{"time is left", func(*v1alpha1.Machine) {}, drain.Unknown},
		{"its time is over", func(m *v1alpha1.Machine) { m.DeletionTimestamp = &metav1.Time{Time: now.Add(-time.Hour)} }, drain.GivenUp},
		{"by force", func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelForceDeletion] = "true" }, drain.GivenUp},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, p, cluster := drainBench(t)
			cluster.Refuse("*", errors.New("no route to host"))
			tc.change(p.world.Machine)
			for _, action := range []lifecycle.Action{lifecycle.FindNode, lifecycle.SetTerminating, lifecycle.DrainNode} {
				p.world.Drain = drain.Report{}
				err := c.act(t.Context(), p, lifecycle.Verdict{Do: action})
				if p.world.Drain.State != tc.want || (err == nil) != tc.want.Ended() {
					t.Errorf("%s: report %+v, error %v", action, p.world.Drain, err)
				}
			}
		})
	}
}
