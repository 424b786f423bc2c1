package drainer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/targettest"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// newDrainer returns the Drainer of a process whose clock stands still.
func newDrainer(t *testing.T) *Drainer {
	t.Helper()
	d, err := New(Config{
		Clock: clocktesting.NewFakeClock(now), ReportAfter: 5 * time.Second,
		Settings: drain.Settings{
			Timeout: time.Hour, MaxEvictRetries: 180, DetachTimeout: time.Minute, ReattachTimeout: time.Minute, VolumeParallelism: 4,
		},
		Backoff: func(time.Duration, driver.Code, time.Duration) (time.Duration, time.Duration) {
			return time.Second, time.Second
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// drainBench returns the drain of the cordoned Node of a machine that was deleted just now, and
// what a pass knows of it.
func drainBench(t *testing.T, objects ...runtime.Object) (*Drain, Task, *fake.Clientset) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "node"}, Spec: corev1.NodeSpec{Unschedulable: true}}
	cluster := fake.NewClientset(append(objects, node)...)
	d := newDrainer(t)
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "n", UID: "u", DeletionTimestamp: &metav1.Time{Time: now}}}
	return d.Of(m.UID, ForDeletion), Task{
		Owner: Owner{UID: m.UID, Namespace: m.Namespace, Wake: func() {}}, Node: node, Cluster: &target.Cluster{Client: cluster},
		Order:  drain.ForDeletion(m, d.cfg.Settings).Under(reach.Fact{}, now),
		Cordon: func(context.Context) (*corev1.Node, error) { return nil, errors.New("the Node is cordoned already") },
	}, cluster
}

func TestANodeWithPodsIsWatched(t *testing.T) {
	d, task, _ := drainBench(t, targettest.PodOn("m", "web", ""))
	v, isSame, err := d.Continue(t.Context(), task)
	if err != nil || !isSame {
		t.Fatalf("the same Node: %t, error %v", isSame, err)
	}
	if v.Do != drain.Rest || v.State != drain.Draining || v.Progress.String() != "" || v.Wake != time.Hour {
		t.Errorf("verdict %+v", v)
	}
	if d.current() == nil {
		t.Fatal("nothing is watched")
	}
	d.of.Forget("u") // another replica holds the machine now
	if d.current() != nil || d.of.Len() > 0 {
		t.Error("it is watched although the machine is not ours any more")
	}
}

// What a drain knows of a cluster does not show that the Node of another one is empty.
func TestADrainBeginsAgainInAnotherCluster(t *testing.T) {
	d, task, _ := drainBench(t, targettest.PodOn("m", "web", ""))
	if _, _, err := d.Continue(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	before, blocked := d.current(), map[types.UID]time.Time{"db": now.Add(-time.Hour)}
	d.memory.BlockedSince = blocked
	if _, _, err := d.Continue(t.Context(), task); err != nil || d.current() != before {
		t.Errorf("another session in the same cluster, error %v", err)
	}
	_, other, _ := drainBench(t, targettest.PodOn("m", "db", ""))
	task.Cluster, d.memory.BlockedSince = other.Cluster, blocked
	v, _, err := d.Continue(t.Context(), task)
	if err != nil || v.State != drain.Draining || d.memory.BlockedSince["db"].Equal(blocked["db"]) {
		t.Errorf("got the verdict %+v, the memory %+v and the error %v", v, d.memory, err)
	}
	if after := d.current(); after == nil || after.cluster.of != other.Cluster || len(before.cluster.sessions) > 0 {
		t.Errorf("want a session in the other cluster only, got %+v", after)
	}
	if !d.wasNeeded() {
		t.Error("there was nothing to drain")
	}
}

func TestRefusedEvictionIsRetriedAfterRetryAfter(t *testing.T) {
	d, task, _ := drainBench(t)
	task.Cluster.Evict = func(_ context.Context, e *policyv1.Eviction) error {
		if e.Namespace != "a" || e.Name != "web" || *e.DeleteOptions.Preconditions.UID != "web" {
			t.Errorf("evicted %+v", e)
		}
		return apierrors.NewTooManyRequests("not now", 30)
	}
	facts := drain.Facts{Now: now}
	verdict := drain.Verdict{Pods: []drain.Removal{{Pod: targettest.PodOn("m", "web", ""), How: drain.Evict}}}
	if err := d.remove(t.Context(), task, &facts, verdict); err != nil {
		t.Fatal(err)
	}
	if a := facts.Memory.Attempts["web"]; a.Accepted || a.NotBefore != now.Add(30*time.Second) || !strings.Contains(a.Why, "not now") {
		t.Errorf("attempt %+v", a)
	}
	unsent := &target.UnavailableError{Reason: "requests are not sent"}
	task.Cluster.Evict = func(context.Context, *policyv1.Eviction) error { return unsent }
	facts.Memory = drain.Memory{}
	if err := d.remove(t.Context(), task, &facts, verdict); !errors.Is(err, unsent) || len(facts.Memory.Attempts) > 0 {
		t.Errorf("a request that was not sent: got the error %v and the attempts %+v", err, facts.Memory.Attempts)
	}
}

func TestOfSeveralBudgetsADisruptionIsTakenFromEach(t *testing.T) {
	budget := func(name string) *policyv1.PodDisruptionBudget {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: types.UID(name), ResourceVersion: "7"}}
		b.Status.DisruptionsAllowed = 2
		return b
	}
	one, two, pod := budget("one"), budget("two"), targettest.PodOn("m", "web", "")
	pod.ResourceVersion = "5"
	d, task, cluster := drainBench(t, one, two, pod)
	facts := drain.Facts{}
	verdict := drain.Verdict{Pods: []drain.Removal{{Pod: pod, How: drain.Take, Budgets: []*policyv1.PodDisruptionBudget{one, two}}}}
	if err := d.remove(t.Context(), task, &facts, verdict); err != nil {
		t.Fatal(err)
	}
	want := []string{"patch poddisruptionbudgets/status", "patch poddisruptionbudgets/status", "delete pods"}
	if got := targettest.Requests(cluster); !slices.Equal(got, want) {
		t.Fatalf("requests %q, want %q", got, want)
	}
	patch, _ := cluster.Actions()[0].(clienttesting.PatchAction)
	if got, want := string(patch.GetPatch()),
		`{"metadata":{"resourceVersion":"7","uid":"one"},"status":{"disruptedPods":{"web":"2026-01-02T03:04:05Z"},"disruptionsAllowed":1}}`; got != want {
		t.Errorf("patch %s, want %s", got, want)
	}
	deletion, _ := cluster.Actions()[2].(clienttesting.DeleteAction)
	if o := deletion.GetDeleteOptions(); *o.Preconditions.UID != "web" || *o.Preconditions.ResourceVersion != "5" ||
		o.GracePeriodSeconds != nil {
		t.Errorf("deleted with %+v", o)
	}
}

// What was written meanwhile is not marked, and tried again.
func TestRecountsOfBudgetsAreRequested(t *testing.T) {
	budget := func(name string) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: types.UID(name), ResourceVersion: "7"},
		}
	}
	one, two, three := budget("one"), budget("two"), budget("three")
	for name, tc := range map[string]struct {
		fails error
		why   string
		tally string
	}{
		"all": {},
		"conflict": {
			fails: apierrors.NewConflict(policyv1.Resource("poddisruptionbudgets"), "two", errors.New("newer")), tally: "request failed",
		},
		"forbidden": {fails: errors.New("forbidden"), why: "forbidden", tally: "request failed"},
		"gone":      {fails: apierrors.NewNotFound(policyv1.Resource("poddisruptionbudgets"), "two")},
	} {
		t.Run(name, func(t *testing.T) {
			d, _, cluster := drainBench(t, one, two, three)
			cluster.PrependReactor("patch", "poddisruptionbudgets", func(a clienttesting.Action) (bool, runtime.Object, error) {
				patch, _ := a.(clienttesting.PatchAction)
				return patch.GetName() == "two" && tc.fails != nil, nil, tc.fails
			})
			facts := drain.Facts{Memory: drain.Memory{Recounts: map[types.UID]drain.Recount{
				"web": {At: now, Requested: map[types.UID]string{"one": "7", "two": "7"}},
				"db":  {At: now, Requested: map[types.UID]string{"three": "7"}},
			}}}
			if err := d.requestRecounts(t.Context(), cluster, &facts, drain.Verdict{
				Budgets: []*policyv1.PodDisruptionBudget{one, two, three},
			}); err != nil {
				t.Fatal(err)
			}
			if got := targettest.Requests(cluster); len(got) != 3 || got[2] != "patch poddisruptionbudgets/status" {
				t.Errorf("requests %q", got)
			}
			patch, _ := cluster.Actions()[0].(clienttesting.PatchAction)
			if got, want := string(patch.GetPatch()),
				`{"metadata":{"resourceVersion":"7","uid":"one"},"status":{"observedGeneration":0}}`; got != want {
				t.Errorf("patch %s, want %s", got, want)
			}
			web := d.memory.Recounts["web"]
			if web.Tally != tc.tally || !strings.Contains(web.Why, tc.why) || (web.Why == "") != (tc.why == "") ||
				d.memory.Recounts["db"].Tally != "" {
				t.Errorf("memory %+v", d.memory.Recounts)
			}
		})
	}
}

// A recorded disruption is not taken a second time, and does not expire before the pod is deleted.
func TestRecordedDisruptionIsUsed(t *testing.T) {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: "a", UID: "one", ResourceVersion: "7"}}
	b.Status = policyv1.PodDisruptionBudgetStatus{
		DisruptionsAllowed: 0, DisruptedPods: map[string]metav1.Time{"web": metav1.NewTime(now.Add(-time.Minute))},
	}
	pod := targettest.PodOn("m", "web", "")
	d, task, cluster := drainBench(t, b, pod)
	facts := drain.Facts{}
	verdict := drain.Verdict{Pods: []drain.Removal{{Pod: pod, How: drain.Take, Budgets: []*policyv1.PodDisruptionBudget{b}}}}
	if err := d.remove(t.Context(), task, &facts, verdict); err != nil {
		t.Fatal(err)
	}
	patch, _ := cluster.Actions()[0].(clienttesting.PatchAction)
	want := `{"metadata":{"resourceVersion":"7","uid":"one"},"status":{"disruptedPods":{"web":"2026-01-02T03:04:05Z"},"disruptionsAllowed":0}}`
	if got := string(patch.GetPatch()); got != want {
		t.Errorf("patch %s, want %s", got, want)
	}
	if !slices.Contains(targettest.Requests(cluster), "delete pods") {
		t.Error("the pod was not deleted")
	}
}

// When another drain was faster, the budget has another version, and the pod stays.
func TestBudgetThatAnotherClientHasUsedKeepsThePod(t *testing.T) {
	one, pod := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: "a"}}, targettest.PodOn("m", "web", "")
	d, task, cluster := drainBench(t, one, pod)
	cluster.PrependReactor("patch", "poddisruptionbudgets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewConflict(policyv1.Resource("poddisruptionbudgets"), "one", errors.New("newer"))
	})
	facts := drain.Facts{}
	verdict := drain.Verdict{Pods: []drain.Removal{{Pod: pod, How: drain.Take, Budgets: []*policyv1.PodDisruptionBudget{one}}}}
	if err := d.remove(t.Context(), task, &facts, verdict); err != nil {
		t.Fatal(err)
	}
	if a := facts.Memory.Attempts["web"]; a.Accepted || a.NotBefore.After(now.Add(5*time.Second)) {
		t.Errorf("attempt %+v, want it refused, to be tried again soon", a)
	}
	if slices.Contains(targettest.Requests(cluster), "delete pods") {
		t.Error("the pod was deleted")
	}
}

func TestPodsAreDeletedByUID(t *testing.T) {
	pod := targettest.PodOn("m", "web", "")
	attachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va", UID: "va-uid"}}
	last := targettest.PodOn("m", "last", "")
	d, task, cluster := drainBench(t, pod, last, attachment)
	var warned []string
	task.Warn = func(_ context.Context, message string) { warned = append(warned, message) }
	facts := drain.Facts{}
	verdict := drain.Verdict{
		Pods:        []drain.Removal{{Pod: pod, How: drain.Delete}, {Pod: targettest.PodOn("m", "gone", ""), How: drain.Delete}},
		Attachments: []*storagev1.VolumeAttachment{attachment},
	}
	if err := d.remove(t.Context(), task, &facts, verdict); err != nil {
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
	if forced := facts.Memory.Forced.String(); forced != "a/web" {
		t.Errorf("deleted without grace: %q, want the pod that was there", forced)
	}
	if want := []string{
		"Pods of Node m that could not be evicted for 1h0m0s (maxEvictRetries) were deleted without grace: a/web",
	}; !slices.Equal(warned, want) {
		t.Errorf("warnings %q, want %q", warned, want)
	}
	if err := d.remove(t.Context(), task, &facts, drain.Verdict{
		Pods: []drain.Removal{{Pod: last, How: drain.Delete}}, Cause: drain.CauseTimeout,
	}); err != nil || len(warned) > 1 || facts.Memory.Forced.String() != "a/web and a/last" {
		t.Errorf("error %v, warnings %q of a drain that is forced, which names %s at its end", err, warned, facts.Memory.Forced)
	}
}

// Without room the pod waits, and no request is sent to the API server.
func TestAPodWaitsForRoom(t *testing.T) {
	pod := targettest.PodOn("m", "db", "")
	d, task, cluster := drainBench(t, pod)
	d.of.detaches.set(task.Cluster, deletionOf("other"), task.Owner.Namespace, drain.MaxDetachesOfOne)
	facts := drain.Facts{}
	verdict := drain.Verdict{Pods: []drain.Removal{{Pod: pod, How: drain.Delete, Moves: 1}}}
	if err := d.remove(t.Context(), task, &facts, verdict); err != nil {
		t.Fatal(err)
	}
	if len(cluster.Actions()) > 0 || len(facts.Memory.Attempts) > 0 {
		t.Errorf("requests %q, attempts %v", targettest.Requests(cluster), facts.Memory.Attempts)
	}
}

// freeingDriver frees the volumes of another drain while it is called.
type freeingDriver struct {
	driver.Driver // nil: nothing but GetVolumeIDs is called

	free func()
}

func (f freeingDriver) GetVolumeIDs(context.Context, driver.GetVolumeIDsRequest) (driver.GetVolumeIDsResponse, error) {
	f.free()
	return driver.GetVolumeIDsResponse{}, driver.Errorf(driver.OpVolumeIDs, driver.Unavailable, "away")
}

// Another drain ends while this one observes. Nothing else happens for hours.
func TestDrainIsWokenByAVolumeSlotFreedWhileItDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := targettest.PodOn("m", "db", "StatefulSet")
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "db"},
		}}}
		csi := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.test", VolumeHandle: "db"}}
		d, task, _ := drainBench(t, pod,
			&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: csi}},
			&corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "a"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "db"},
			},
			&storagev1.VolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Name: "va"},
				Status:     storagev1.VolumeAttachmentStatus{Attached: true},
				Spec: storagev1.VolumeAttachmentSpec{
					Attacher: "csi.test", NodeName: "m", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("db")},
				},
			},
		)
		var woken atomic.Int32
		task.Owner.Wake = func() { woken.Add(1) }
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { d.of.Run(ctx) })
		defer running.Wait()
		defer end()
		d.of.detaches.set(task.Cluster, deletionOf("another"), task.Owner.Namespace, drain.MaxDetachesOfOne)
		if _, _, err := d.Continue(ctx, task); err != nil { // begins to watch
			t.Fatal(err)
		}
		synctest.Wait()
		woken.Store(0)
		task.Driver = freeingDriver{free: func() { d.of.detaches.forget(deletionOf("another")) }}
		v, _, err := d.Continue(ctx, task)
		if err != nil || len(v.Progress.Waiting) == 0 {
			t.Fatalf("verdict %+v, error %v; want the pod to wait until more volumes may move", v, err)
		}
		if woken.Load() == 0 {
			t.Error("the drain waits although volumes may move")
		}
	})
}
