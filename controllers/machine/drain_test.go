package machine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/credentials"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/target"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// targetBench is a controller with nothing but a target cluster, and a pass over the machine of that UID.
func targetBench(t *testing.T, cluster *fake.Clientset, uid types.UID) (*Controller, *pass) {
	t.Helper()
	wall := clocktesting.NewFakeClock(now)
	c := &Controller{
		drains: newDrains(), tokens: credentials.NewTokens(credentials.TokensConfig{Clock: wall}), nodes: patch.NewLatest[*corev1.Node](),
		nodeWriteLimit: newNodeWriteLimit(), memory: newMemory[types.UID, remembered](), claims: newMemory[string, claim](),
		cfg: Config{Clock: wall, Limits: lifecycle.Limits{CreationTimeout: 20 * time.Minute}},
	}
	p := &pass{cluster: &target.Cluster{Client: cluster}}
	p.world.Machine = &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "n", UID: uid}}
	return c, p
}

// drainBench is a controller with nothing but a target cluster, and a pass over a machine that was deleted just now.
func drainBench(t *testing.T, objects ...runtime.Object) (*Controller, *pass, *fake.Clientset) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "m", UID: "node", Annotations: map[string]string{v1alpha1.AnnotationMachine: "n/m/u"},
	}}
	cluster := fake.NewClientset(append(objects, node)...)
	c, p := targetBench(t, cluster, "u")
	c.cfg.Limits.Drain = drain.Settings{Timeout: time.Hour, MaxEvictRetries: 180, DetachTimeout: time.Minute, ReattachTimeout: time.Minute, VolumeParallelism: 4}
	var err error
	c.runner, err = runner.New(runner.Config[types.NamespacedName]{
		Name: "test", Reconcile: func(context.Context, types.NamespacedName) (runner.Result, error) { return runner.Result{}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	p.world.Machine.DeletionTimestamp = &metav1.Time{Time: now}
	p.world.Machine.Labels = map[string]string{v1alpha1.LabelNode: "m"}
	p.world.Node = lifecycle.NodeFact{State: lifecycle.NodePresent, Node: node}
	return c, p, cluster
}

func requests(cluster *fake.Clientset) []string {
	var made []string
	for _, a := range cluster.Actions() {
		made = append(made, strings.TrimSuffix(a.GetVerb()+" "+a.GetResource().Resource+"/"+a.GetSubresource(), "/"))
	}
	return made
}

func podOn(node, name, owner string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: node}}
	if owner != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Controller: new(true)}}
	}
	return pod
}

func TestANodeWithPodsIsWatched(t *testing.T) {
	c, p, _ := drainBench(t, podOn("m", "web", ""))
	if err := c.drainNode(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if r := p.world.Drain; r.State != drain.Draining || r.Text != "" || r.Wake != time.Hour {
		t.Errorf("report %+v", r)
	}
	d := c.drains.of("u")
	if d.seen() == nil {
		t.Fatal("nothing is watched")
	}
	c.drains.forget("u") // another replica holds the machine now
	if d.seen() != nil || len(c.drains.known) > 0 {
		t.Error("it is watched although the machine is not ours any more")
	}
}

// The Node is deleted between the read and the cordon, and the Node of another VM gets its name.
func TestTheNodeOfAnotherVMIsNotDrained(t *testing.T) {
	c, p, cluster := drainBench(t, podOn("m", "web", ""))
	p.world.Machine.Spec.ProviderID = "test:///ours"
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "other"}, Spec: corev1.NodeSpec{ProviderID: "test:///theirs"}}
	replaced := false
	cluster.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if replaced {
			return false, nil, nil
		}
		replaced = true
		if err := cluster.Tracker().Update(nodes, other, ""); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "m", errors.New("another UID"))
	})
	if err := c.drainNode(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if got, want := requests(cluster), []string{"patch nodes", "get nodes"}; !slices.Equal(got, want) {
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
		if err := c.markNode(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := requests(cluster), []string{"patch nodes", "list pods", "patch nodes/status"}; !slices.Equal(got, want) {
		t.Errorf("requests %q, want %q", got, want)
	}
	conditions := p.world.Node.Node.Status.Conditions
	if len(conditions) != 1 || conditions[0].Type != "Terminating" || conditions[0].Status != "True" || conditions[0].Reason != "Unhealthy" {
		t.Errorf("conditions %+v", conditions)
	}
}

func TestRefusedEvictionIsRetriedAfterRetryAfter(t *testing.T) {
	c, p, _ := drainBench(t)
	p.cluster.Evict = func(_ context.Context, e *policyv1.Eviction) error {
		if e.Namespace != "a" || e.Name != "web" || *e.DeleteOptions.Preconditions.UID != "web" {
			t.Errorf("evicted %+v", e)
		}
		return apierrors.NewTooManyRequests("not now", 30)
	}
	facts := drain.Facts{}
	verdict := drain.Verdict{Pods: []drain.Removal{{Pod: podOn("m", "web", ""), How: drain.Evict}}}
	if err := c.remove(t.Context(), p, c.drains.of("u"), &facts, verdict); err != nil {
		t.Fatal(err)
	}
	if a := facts.Memory.Attempts["web"]; a.Accepted || a.NotBefore != now.Add(30*time.Second) || !strings.Contains(a.Why, "not now") {
		t.Errorf("attempt %+v", a)
	}
}

func TestOfSeveralBudgetsADisruptionIsTakenFromEach(t *testing.T) {
	budget := func(name string) *policyv1.PodDisruptionBudget {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: types.UID(name), ResourceVersion: "7"}}
		b.Status.DisruptionsAllowed = 2
		return b
	}
	one, two, pod := budget("one"), budget("two"), podOn("m", "web", "")
	pod.ResourceVersion = "5"
	c, p, cluster := drainBench(t, one, two, pod)
	facts := drain.Facts{}
	verdict := drain.Verdict{Pods: []drain.Removal{{Pod: pod, How: drain.Take, Budgets: []*policyv1.PodDisruptionBudget{one, two}}}}
	if err := c.remove(t.Context(), p, c.drains.of("u"), &facts, verdict); err != nil {
		t.Fatal(err)
	}
	want := []string{"patch poddisruptionbudgets/status", "patch poddisruptionbudgets/status", "delete pods"}
	if got := requests(cluster); !slices.Equal(got, want) {
		t.Fatalf("requests %q, want %q", got, want)
	}
	patch, _ := cluster.Actions()[0].(clienttesting.PatchAction)
	if got, want := string(patch.GetPatch()), `{"metadata":{"resourceVersion":"7","uid":"one"},"status":{"disruptedPods":{"web":"2026-01-02T03:04:05Z"},"disruptionsAllowed":1}}`; got != want {
		t.Errorf("patch %s, want %s", got, want)
	}
	deletion, _ := cluster.Actions()[2].(clienttesting.DeleteAction)
	if o := deletion.GetDeleteOptions(); *o.Preconditions.UID != "web" || *o.Preconditions.ResourceVersion != "5" || o.GracePeriodSeconds != nil {
		t.Errorf("deleted with %+v", o)
	}
}

// What was written meanwhile is not marked, and tried again.
func TestBudgetsAreMarkedToBeCounted(t *testing.T) {
	budget := func(name string) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: types.UID(name), ResourceVersion: "7"}}
	}
	one, two, three := budget("one"), budget("two"), budget("three")
	for name, tc := range map[string]struct {
		fails error
		why   string
		tally string
	}{
		"all":       {},
		"conflict":  {fails: apierrors.NewConflict(policyv1.Resource("poddisruptionbudgets"), "two", errors.New("newer")), tally: "unmarked"},
		"forbidden": {fails: errors.New("forbidden"), why: "forbidden", tally: "unmarked"},
		"gone":      {fails: apierrors.NewNotFound(policyv1.Resource("poddisruptionbudgets"), "two")},
	} {
		t.Run(name, func(t *testing.T) {
			c, p, cluster := drainBench(t, one, two, three)
			cluster.PrependReactor("patch", "poddisruptionbudgets", func(a clienttesting.Action) (bool, runtime.Object, error) {
				patch, _ := a.(clienttesting.PatchAction)
				return patch.GetName() == "two" && tc.fails != nil, nil, tc.fails
			})
			facts := drain.Facts{Memory: drain.Memory{Recounts: map[types.UID]drain.Recount{
				"web": {At: now, Marked: map[types.UID]string{"one": "7", "two": "7"}}, "db": {At: now, Marked: map[types.UID]string{"three": "7"}},
			}}}
			d := c.drains.of("u")
			if err := c.mark(t.Context(), p, d, &facts, drain.Verdict{Budgets: []*policyv1.PodDisruptionBudget{one, two, three}}); err != nil {
				t.Fatal(err)
			}
			if got := requests(cluster); len(got) != 3 || got[2] != "patch poddisruptionbudgets/status" {
				t.Errorf("requests %q", got)
			}
			patch, _ := cluster.Actions()[0].(clienttesting.PatchAction)
			if got, want := string(patch.GetPatch()), `{"metadata":{"resourceVersion":"7","uid":"one"},"status":{"observedGeneration":0}}`; got != want {
				t.Errorf("patch %s, want %s", got, want)
			}
			web := d.memory.Recounts["web"]
			if web.Tally != tc.tally || !strings.Contains(web.Why, tc.why) || (web.Why == "") != (tc.why == "") || d.memory.Recounts["db"].Tally != "" {
				t.Errorf("memory %+v", d.memory.Recounts)
			}
		})
	}
}

// A recorded disruption is not taken a second time, and does not expire before the pod is deleted.
func TestRecordedDisruptionIsUsed(t *testing.T) {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: "a", UID: "one", ResourceVersion: "7"}}
	b.Status = policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 0, DisruptedPods: map[string]metav1.Time{"web": metav1.NewTime(now.Add(-time.Minute))}}
	pod := podOn("m", "web", "")
	c, p, cluster := drainBench(t, b, pod)
	facts := drain.Facts{}
	verdict := drain.Verdict{Pods: []drain.Removal{{Pod: pod, How: drain.Take, Budgets: []*policyv1.PodDisruptionBudget{b}}}}
	if err := c.remove(t.Context(), p, c.drains.of("u"), &facts, verdict); err != nil {
		t.Fatal(err)
	}
	patch, _ := cluster.Actions()[0].(clienttesting.PatchAction)
	want := `{"metadata":{"resourceVersion":"7","uid":"one"},"status":{"disruptedPods":{"web":"2026-01-02T03:04:05Z"},"disruptionsAllowed":0}}`
	if got := string(patch.GetPatch()); got != want {
		t.Errorf("patch %s, want %s", got, want)
	}
	if !slices.Contains(requests(cluster), "delete pods") {
		t.Error("the pod was not deleted")
	}
}

// When another drain was faster, the budget has another version, and the pod stays.
func TestBudgetThatAnotherClientHasUsedKeepsThePod(t *testing.T) {
	one, pod := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: "a"}}, podOn("m", "web", "")
	c, p, cluster := drainBench(t, one, pod)
	cluster.PrependReactor("patch", "poddisruptionbudgets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewConflict(policyv1.Resource("poddisruptionbudgets"), "one", errors.New("newer"))
	})
	facts := drain.Facts{}
	verdict := drain.Verdict{Pods: []drain.Removal{{Pod: pod, How: drain.Take, Budgets: []*policyv1.PodDisruptionBudget{one}}}}
	if err := c.remove(t.Context(), p, c.drains.of("u"), &facts, verdict); err != nil {
		t.Fatal(err)
	}
	if a := facts.Memory.Attempts["web"]; a.Accepted || a.NotBefore.After(now.Add(5*time.Second)) {
		t.Errorf("attempt %+v, want it refused, to be tried again soon", a)
	}
	if slices.Contains(requests(cluster), "delete pods") {
		t.Error("the pod was deleted")
	}
}

func TestPodsAreDeletedByUID(t *testing.T) {
	pod := podOn("m", "web", "")
	attachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va", UID: "va-uid"}}
	c, p, cluster := drainBench(t, pod, attachment)
	facts := drain.Facts{}
	verdict := drain.Verdict{
		Pods:        []drain.Removal{{Pod: pod, How: drain.Delete}, {Pod: podOn("m", "gone", ""), How: drain.Delete}},
		Attachments: []*storagev1.VolumeAttachment{attachment},
	}
	if err := c.remove(t.Context(), p, c.drains.of("u"), &facts, verdict); err != nil {
		t.Fatal(err)
	}
	var uids []types.UID
	for _, a := range cluster.Actions() {
		deletion, _ := a.(clienttesting.DeleteAction)
		o := deletion.GetDeleteOptions()
		uids = append(uids, *o.Preconditions.UID)
		if a.GetResource().Resource == "pods" && *o.GracePeriodSeconds != 0 {
			t.Errorf("a pod has %d s", *o.GracePeriodSeconds)
		}
	}
	if want := []types.UID{"web", "gone", "va-uid"}; !slices.Equal(uids, want) {
		t.Errorf("deleted %v, want %v", uids, want)
	}
	for _, uid := range []types.UID{"web", "gone", "va-uid"} { // what is not there any more was removed, too
		if a := facts.Memory.Attempts[uid]; !a.Accepted || !a.Forced {
			t.Errorf("%s: attempt %+v", uid, a)
		}
	}
}

// The same of a whole drain: another one ends while this one looks. Nothing else happens for hours.
func TestDrainIsWokenByAVolumeSlotFreedWhileItDecides(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		w := &workload{bench: b}
		w.volume("db", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.test", VolumeHandle: "db"}})
		w.attach("db", "m")
		detaches := b.process.drains.detaches
		detaches.set(b.cluster, machineIn(b.get().Namespace, "another"), drain.MaxDetachesOfOne)
		b.cloud.mu.Lock()
		b.cloud.fault = func(op driver.Op) *testFault {
			if op == driver.OpVolumeIDs {
				detaches.forget("another")
			}
			return nil
		}
		b.cloud.mu.Unlock()
		b.delete()
		b.pass(time.Minute)
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.evicted["db"] == 0 {
			t.Error("the pod waits although volumes may move")
		}
	})
}

func TestAMachineWithoutTheNameOfItsNodeFindsIt(t *testing.T) {
	labels := map[string]string{v1alpha1.LabelMachineName: "m"}
	ours := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ours", Labels: labels}, Spec: corev1.NodeSpec{ProviderID: "cloud:///zone/i-1"}}
	older := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "older", Labels: labels}, Spec: corev1.NodeSpec{ProviderID: "cloud:///zone/i-0"}}
	c, p, _ := drainBench(t, ours, older)
	p.world.Machine.Labels, p.world.Machine.Spec.ProviderID = nil, "cloud:///zone/i-1"
	if err := c.findNode(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if n := p.world.Node; n.State != lifecycle.NodePresent || n.Node.Name != "ours" {
		t.Errorf("found %+v", n)
	}
}

// Without room the pod waits, and no request is sent to the API server.
func TestAPodWaitsForRoom(t *testing.T) {
	pod := podOn("m", "db", "")
	c, p, cluster := drainBench(t, pod)
	c.drains.detaches.set(p.cluster, machineIn(p.world.Machine.Namespace, "other"), drain.MaxDetachesOfOne)
	facts := drain.Facts{}
	verdict := drain.Verdict{Pods: []drain.Removal{{Pod: pod, How: drain.Delete, Moves: 1}}}
	if err := c.remove(t.Context(), p, c.drains.of("u"), &facts, verdict); err != nil {
		t.Fatal(err)
	}
	if len(cluster.Actions()) > 0 || len(facts.Memory.Attempts) > 0 {
		t.Errorf("requests %q, attempts %v", requests(cluster), facts.Memory.Attempts)
	}
}

// A short failure is retried like any other; after some seconds the machine reports it.
func TestUnreachableTargetIsReported(t *testing.T) {
	c, p, cluster := drainBench(t)
	wall := clocktesting.NewFakeClock(now)
	c.cfg.Clock = wall
	isDown := true
	cluster.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return isDown, nil, errors.New("no route to host")
	})
	drainNow := func() error {
		p.world.Drain = drain.Report{}
		return c.act(t.Context(), p, lifecycle.Verdict{Do: lifecycle.DrainNode})
	}
	if err := drainNow(); err == nil {
		t.Errorf("at first: report %+v, want an error", p.world.Drain)
	}
	wall.Step(patience)
	if err := drainNow(); err != nil || !p.world.Drain.IsStuck || !strings.Contains(p.world.Drain.Text, "no route to host") || p.world.Drain.Wake == 0 {
		t.Errorf("after a while: report %+v, error %v", p.world.Drain, err)
	}
	isDown = false
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
			cluster.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("no route to host")
			})
			tc.change(p.world.Machine)
			for _, action := range []lifecycle.Action{lifecycle.FindNode, lifecycle.MarkNode, lifecycle.DrainNode} {
				p.world.Drain = drain.Report{}
				err := c.act(t.Context(), p, lifecycle.Verdict{Do: action})
				if p.world.Drain.State != tc.want || (err == nil) != tc.want.Ended() {
					t.Errorf("%s: report %+v, error %v", action, p.world.Drain, err)
				}
			}
		})
	}
}
