package drainer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// bench is a Set that runs, in a bubble in which synctest.Wait waits until all news have arrived.
type bench struct {
	*testing.T

	client *fake.Clientset
	set    *watchSet
}

// inBench runs a test with a cluster of these objects.
func inBench(t *testing.T, objects []runtime.Object, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, client: fake.NewClientset(objects...), set: newWatchSet(clock.RealClock{})}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			b.set.Run(ctx)
		}()
		test(b)
		stop()
		<-ended
	})
}

// drainOf begins to watch for the drain of a Node, and counts how often it is woken.
func (b *bench) drainOf(node string) (*watchSession, *atomic.Int32) {
	var woken atomic.Int32
	s := b.set.Begin(&target.Cluster{Name: "one", Client: b.client}, node, func() { woken.Add(1) })
	return s, &woken
}

// lists counts the lists of each kind.
func (b *bench) lists() map[string]int {
	counted := map[string]int{}
	for _, a := range b.client.Actions() {
		if a.GetVerb() == "list" {
			counted[a.GetResource().Resource]++
		}
	}
	return counted
}

func pod(name, node string, volumes ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "a", Labels: map[string]string{"app": "x"}, Annotations: map[string]string{"long": "text"},
	}}
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{{Name: "c"}}
	for _, v := range volumes {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: v, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v},
		}})
	}
	return p
}

func claim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name},
	}
}

func attachment(volume, node string) *storagev1.VolumeAttachment {
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: volume + "-" + node}}
	a.Spec.NodeName, a.Spec.Source.PersistentVolumeName = node, &volume
	return a
}

func TestSessionReturnsWhatADrainDependsOn(t *testing.T) {
	others := claim("other")
	others.Namespace = "b"
	db := pod("db-0", "n", "data")
	db.Spec.Volumes = append(db.Spec.Volumes,
		corev1.Volume{Name: "inline", VolumeSource: corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{}}},
		corev1.Volume{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	inBench(t, []runtime.Object{
		db, claim("data"), others,
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-data"}},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-other"}},
		attachment("pv-data", "n"), attachment("pv-other", "m"), attachment("pv-left", "m"),
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "a"}},
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere", Namespace: "b"}},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "disks"}},
	}, func(b *bench) {
		s, woken := b.drainOf("n")
		f := drain.Facts{Memory: drain.Memory{Volumes: map[string]drain.VolumeMemory{"pv-left": {}}}}
		synctest.Wait()
		if woken.Load() == 0 {
			b.Error("no drain is woken when everything is listed")
		}
		if !s.Show(&f) || f.Sight != drain.Watched {
			b.Fatal("it shows nothing")
		}
		var budgets, attached, pvs []string
		for _, x := range f.Budgets {
			budgets = append(budgets, x.Name)
		}
		for _, x := range f.Volumes.Attachments {
			attached = append(attached, x.Name)
		}
		for name := range f.Volumes.PVs {
			pvs = append(pvs, name)
		}
		slices.Sort(attached)
		got := []any{len(f.Pods), budgets, attached, pvs, len(f.Volumes.Claims), len(f.Volumes.CSIDrivers)}
		want := []any{1, []string{"db"}, []string{"pv-data-n", "pv-left-m"}, []string{"pv-data"}, 1, 1}
		if diff := cmp.Diff(want, got); diff != "" {
			b.Errorf("pods, budgets, attachments, volumes, claims, drivers (-want +got):\n%s", diff)
		}
		if p := f.Pods[0]; len(p.Spec.Containers) > 0 || len(p.Annotations) > 0 || len(p.Spec.Volumes) != 2 || p.Labels["app"] != "x" {
			b.Errorf("of a pod is kept %+v", p)
		}
		s.End()
	})
}

// A pod would seem to have no budget where budgets are only late.
func TestNothingIsReturnedBeforeAllIsListed(t *testing.T) {
	inBench(t, []runtime.Object{pod("p", "n")}, func(b *bench) {
		var there atomic.Bool
		b.client.PrependReactor("list", "poddisruptionbudgets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !there.Load(), nil, errors.New("not yet")
		})
		s, woken := b.drainOf("n")
		synctest.Wait()
		f := drain.Facts{}
		if s.Show(&f) || f.Sight != drain.Awaited {
			b.Error("it shows pods without budgets")
		}
		if s.WatchError() != "not yet" {
			b.Errorf("it does not report why: %q", s.WatchError())
		}
		before := woken.Load()
		there.Store(true)
		// It is tried again: soon, but for an error handler of apimachinery that bubbles' early time
		// confuses. It waits until the process' own.
		time.Sleep(100 * 365 * 24 * time.Hour)
		if woken.Load() == before || !s.Show(&drain.Facts{}) {
			b.Error("it does not report when the last kind is listed")
		}
		if s.WatchError() != "" {
			b.Errorf("everything is listed, and it reports %q", s.WatchError())
		}
		s.End()
	})
}

// A drain is woken by trouble, with its own pods and with what it shares, and when that is over;
// once for each.
func TestWatchErrorsWakeTheDrain(t *testing.T) {
	inBench(t, nil, func(b *bench) {
		s, woken := b.drainOf("n")
		synctest.Wait()
		other, unconcerned := b.drainOf("m")
		synctest.Wait()
		down := errors.New("no route to host")
		for _, tc := range []struct {
			name    string
			of      *watchErrors
			wakes   []string // the names of drains
			what    string
			err     error
			trouble string
		}{
			{"its pods cannot be watched", s.watchErrors, []string{"n"}, "pods watch", down, down.Error()},
			{"and cannot be listed", s.watchErrors, []string{"n"}, "pods list", errors.New("forbidden"), "forbidden"},
			{"which persists", s.watchErrors, nil, "pods list", errors.New("forbidden"), "forbidden"},
			{"they can be listed again", s.watchErrors, []string{"n"}, "pods list", nil, down.Error()},
			{"and watched", s.watchErrors, []string{"n"}, "pods watch", nil, ""},
			{"all is well", s.watchErrors, nil, "pods watch", nil, ""},
			{"no budgets can be watched", s.cluster.watchErrors, []string{"n", "m"}, "budgets watch", down, down.Error()},
			{"now they can", s.cluster.watchErrors, []string{"n", "m"}, "budgets watch", nil, ""},
		} {
			before := map[string]int32{"n": woken.Load(), "m": unconcerned.Load()}
			tc.of.record(b.Context(), tc.what, tc.err)
			for name, now := range map[string]int32{"n": woken.Load(), "m": unconcerned.Load()} {
				if got := now > before[name]; got != slices.Contains(tc.wakes, name) {
					b.Errorf("%s: the drain of %s is woken: %t", tc.name, name, got)
				}
			}
			if got := s.WatchError(); got != tc.trouble {
				b.Errorf("%s: it reports %q, want %q", tc.name, got, tc.trouble)
			}
		}
		ended, end := context.WithCancel(b.Context())
		end()
		s.watchErrors.record(ended, "pods watch", down)
		if s.WatchError() != "" {
			b.Errorf("no watch runs any more, and it reports %q", s.WatchError())
		}
		s.End()
		other.End()
	})
}

// The fake cluster selects nothing by fields; that only pods of the Node are asked for is seen in
// the request.
func TestOnlyPodsOfTheNodeAreListed(t *testing.T) {
	inBench(t, nil, func(b *bench) {
		s, _ := b.drainOf("n")
		synctest.Wait()
		asked := 0
		for _, a := range b.client.Actions() {
			if a.GetResource().Resource != "pods" {
				continue
			}
			asked++
			var selector string
			switch a := a.(type) {
			case clienttesting.ListAction:
				selector = a.GetListRestrictions().Fields.String()
			case clienttesting.WatchAction:
				selector = a.GetWatchRestrictions().Fields.String()
			}
			if selector != "spec.nodeName=n" {
				b.Errorf("%s of pods with %q", a.GetVerb(), selector)
			}
		}
		if asked != 2 {
			b.Errorf("%d requests for pods, want a list and a watch", asked)
		}
		s.End()
	})
}

// The cluster of a namespace may send any number, and any page may name a next one.
func TestPodsOfANodeAreBounded(t *testing.T) {
	pods := &corev1.PodList{ListMeta: metav1.ListMeta{Continue: "more"}, Items: make([]corev1.Pod, 100)}
	for i := range pods.Items {
		pods.Items[i].Name, pods.Items[i].Annotations = fmt.Sprintf("p-%d", i), map[string]string{"large": strings.Repeat("x", 10<<10)}
	}
	inBench(t, nil, func(b *bench) {
		b.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, pods, nil })
		const want = "expected pods that take together at most 8 MiB of memory, got more"
		if _, err := ListPods(b.Context(), &target.Cluster{Name: "one", Client: b.client}, "n"); err == nil ||
			!strings.Contains(err.Error(), want) {
			b.Errorf("got %v, want %s", err, want)
		}
		s, _ := b.drainOf("n")
		synctest.Wait()
		if got := s.WatchError(); !strings.Contains(got, "expected objects that take together at most 96 MiB of memory, got more") {
			b.Errorf("got the error %q", got)
		}
		s.End()
	})
}

func TestDrainsOfAClusterShareWatches(t *testing.T) {
	inBench(t, nil, func(b *bench) {
		first, _ := b.drainOf("n")
		synctest.Wait()
		second, woken := b.drainOf("m")
		synctest.Wait()
		want := map[string]int{
			"pods": 2, "poddisruptionbudgets": 1, "persistentvolumeclaims": 1, "persistentvolumes": 1, "volumeattachments": 1, "csidrivers": 1,
		}
		if diff := cmp.Diff(want, b.lists()); diff != "" {
			b.Errorf("lists of two drains (-want +got):\n%s", diff)
		}
		if woken.Load() == 0 || !second.Show(&drain.Facts{}) {
			b.Error("the second drain, which came when all was there, sees nothing")
		}
		first.End()
		first.End() // twice does no harm
		before := woken.Load()
		b.create(pod("new", "m"))
		synctest.Wait()
		if woken.Load() == before {
			b.Error("the second drain gets no events after the first one has ended")
		}
		second.End()
		time.Sleep(idleFor - time.Second)
		third, _ := b.drainOf("n")
		time.Sleep(idleFor)
		third.End()
		time.Sleep(idleFor - time.Second)
		if got := b.lists()["poddisruptionbudgets"]; got != 1 {
			b.Errorf("budgets were listed %d times, want once for drains that follow each other", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(b.set.clusters); n > 0 {
			b.Errorf("%d clusters are watched, and nothing was drained for %s", n, idleFor)
		}
		last, _ := b.drainOf("n")
		synctest.Wait()
		if got := b.lists()["poddisruptionbudgets"]; got != 2 {
			b.Errorf("budgets were listed %d times, want once more for a later drain", got)
		}
		last.End()
	})
}

func (b *bench) create(p *corev1.Pod) {
	if _, err := b.client.CoreV1().Pods(p.Namespace).Create(b.Context(), p, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

func TestDrainsAreWokenByChangesThatAffectThem(t *testing.T) {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "a"}}
	strange := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "strange"}}
	inBench(t, []runtime.Object{pod("p", "n"), budget, strange, attachment("pv", "n")}, func(b *bench) {
		s, woken := b.drainOf("n")
		synctest.Wait()
		s.Await(map[string]bool{"awaited": true})
		must := func(_ any, err error) {
			if err != nil {
				b.Fatal(err)
			}
		}
		wakes := func(what string, want bool, do func()) {
			b.Helper()
			before := woken.Load()
			do()
			synctest.Wait()
			if got := woken.Load() > before; got != want {
				b.Errorf("%s wakes: %t, want %t", what, got, want)
			}
		}
		ctx, budgets := b.Context(), b.client.PolicyV1()
		attachments, pods := b.client.StorageV1().VolumeAttachments(), b.client.CoreV1().Pods("a")
		running := pod("p", "n")
		wakes("a pod that is labelled", true, func() {
			running.Labels = map[string]string{"app": "y"}
			must(pods.Update(ctx, running, metav1.UpdateOptions{}))
		})
		wakes("a pod's annotation", false, func() {
			running.Annotations = map[string]string{"x": "y"}
			must(pods.Update(ctx, running, metav1.UpdateOptions{}))
		})
		wakes("a budget that allows more", true, func() {
			budget.Status.DisruptionsAllowed = 1
			must(budgets.PodDisruptionBudgets("a").Update(ctx, budget, metav1.UpdateOptions{}))
		})
		wakes("a budget's label", false, func() {
			budget.Labels = map[string]string{"x": "y"}
			must(budgets.PodDisruptionBudgets("a").Update(ctx, budget, metav1.UpdateOptions{}))
		})
		wakes("a budget of another namespace", false, func() {
			strange.Status.DisruptionsAllowed = 1
			must(budgets.PodDisruptionBudgets("strange").Update(ctx, strange, metav1.UpdateOptions{}))
		})
		wakes("an attachment that is deleted", true, func() { must(nil, attachments.Delete(ctx, "pv-n", metav1.DeleteOptions{})) })
		wakes("an attachment of another Node", false, func() { must(attachments.Create(ctx, attachment("pv", "m"), metav1.CreateOptions{})) })
		wakes("an awaited volume on another Node", true, func() {
			must(attachments.Create(ctx, attachment("awaited", "m"), metav1.CreateOptions{}))
		})
		wakes("a pod that is deleted", true, func() { must(nil, pods.Delete(ctx, "p", metav1.DeleteOptions{})) })
		s.End()
	})
}
