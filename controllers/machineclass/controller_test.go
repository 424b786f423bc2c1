package machineclass

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a controller with a cluster that has the objects.
func bench(t *testing.T, objs ...apiserver.Typed) (*Controller, *apiserver.Server) {
	t.Helper()
	cluster := apiserver.Recording(objs...)
	c, err := New(Config{
		Machines: cluster.Machines(), Secrets: cluster.Core().CoreV1(), Metadata: cluster.Metadata(),
		View: objectcache.NewView(), Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, cluster
}

// finalizers returns those of an object.
func finalizers(t *testing.T, cluster *apiserver.Server, resource, namespace, name string) []string {
	t.Helper()
	o := cluster.Get(resource, namespace, name)
	if o == nil {
		t.Fatalf("%s %s/%s does not exist", resource, namespace, name)
	}
	return o.GetFinalizers()
}

// Machines of another replica may use a class. No event reports the deletion of the last of them.
func TestClassIsKeptForMachinesOfOtherReplicas(t *testing.T) {
	key := types.NamespacedName{Namespace: "n", Name: "c"}
	for name, tc := range map[string]struct {
		deleted bool
		wait    time.Duration
	}{
		"it is being deleted":     {deleted: true, wait: userPoll},
		"it is not being deleted": {wait: idlePoll},
	} {
		t.Run(name, func(t *testing.T) {
			class := &v1alpha1.MachineClass{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", Finalizers: []string{v1alpha1.FinalizerName, "other"}},
			}
			if tc.deleted {
				class.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			}
			c, cluster := bench(t, class, machine("m", "c", ""))
			defer end(c)
			if result, err := c.reconcileClass(t.Context(), key); err != nil || result.RequeueAfter != tc.wait {
				t.Errorf("requeued after %v (%v), want %v", result.RequeueAfter, err, tc.wait)
			}
			cluster.Delete("machines", "n", "m")
			if result, err := c.reconcileClass(t.Context(), key); err != nil || result.RequeueAfter != 0 {
				t.Errorf("requeued after %v (%v), want never", result.RequeueAfter, err)
			}
			if left := finalizers(t, cluster, "machineclasses", "n", "c"); !slices.Equal(left, []string{"other"}) {
				t.Errorf("finalizers %v, want the other one", left)
			}
		})
	}
}

// The last machine of a class is updated in place to another class.
func TestClassThatMachinesHaveLeftIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := &v1alpha1.MachineClass{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "left", UID: "left", Finalizers: []string{v1alpha1.FinalizerName}},
		}
		c, cluster := bench(t, left, machine("m", "taken", "vm"))
		ctx, end := context.WithCancel(t.Context())
		go c.Run(ctx)
		defer func() {
			end()
			synctest.Wait()
		}()
		before, after := machine("m", "left", "vm"), machine("m", "taken", "vm")
		before.ResourceVersion, after.ResourceVersion = "1", "2"
		c.cfg.View.Machines.Apply(before, false)
		c.cfg.View.Classes.Apply(left, false)
		synctest.Wait()
		if len(finalizers(t, cluster, "machineclasses", "n", "left")) == 0 {
			t.Fatal("it was released while a machine had it")
		}
		c.cfg.View.Machines.Apply(after, false)
		synctest.Wait()
		if got := finalizers(t, cluster, "machineclasses", "n", "left"); len(got) > 0 {
			t.Errorf("finalizers %v, want none", got)
		}
	})
}

// Another client removes our finalizers. The class' holder adds them again, also if all machines
// are other replicas'.
func TestFinalizerIsAddedAgainToAClassWithVMs(t *testing.T) {
	key := types.NamespacedName{Namespace: "n", Name: "c"}
	for name, tc := range map[string]struct {
		machines []*v1alpha1.Machine
		want     bool
	}{
		"unused":               {},
		"used without a VM":    {machines: []*v1alpha1.Machine{machine("a", "c", "")}},
		"VMs of another class": {machines: []*v1alpha1.Machine{machine("a", "other", "vm")}},
		"with a VM":            {machines: []*v1alpha1.Machine{machine("a", "c", ""), machine("b", "c", "vm")}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			c, cluster := bench(t, &v1alpha1.MachineClass{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}, SecretRef: &corev1.SecretReference{Namespace: "n", Name: "s"},
			}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s"}})
			for _, m := range tc.machines {
				apiserver.Add(cluster, m)
			}
			defer end(c)
			wait := time.Duration(0)
			if tc.want {
				wait = idlePoll // until the machines are deleted
			}
			if result, err := c.reconcileClass(t.Context(), key); err != nil || result.RequeueAfter != wait {
				t.Errorf("requeued after %v (%v), want %v", result.RequeueAfter, err, wait)
			}
			if hasFinalizer := len(finalizers(t, cluster, "machineclasses", "n", "c")) > 0; hasFinalizer != tc.want {
				t.Errorf("the class has our finalizer: %t, want %t", hasFinalizer, tc.want)
			}
			if hasFinalizer := len(finalizers(t, cluster, "secrets", "n", "s")) > 0; hasFinalizer != tc.want {
				t.Errorf("the Secret has our finalizer: %t, want %t", hasFinalizer, tc.want)
			}
		})
	}
}

// A class may name a Secret of another namespace that is shared with its own. The Secret is
// released with the last class that names it, in any namespace.
func TestSecretIsKeptForClassesOfAllNamespaces(t *testing.T) {
	class := func(namespace string) *v1alpha1.MachineClass {
		return &v1alpha1.MachineClass{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "c", UID: types.UID("class-" + namespace), Finalizers: []string{v1alpha1.FinalizerName},
				DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)},
			},
			SecretRef: &corev1.SecretReference{Namespace: "third", Name: "s"},
		}
	}
	for name, tc := range map[string]struct {
		served  string
		deleted []string // namespaces of the classes, in the order of their deletion
		want    []bool   // whether the Secret has our finalizer after each
	}{
		"all namespaces are served": {deleted: []string{"first", "second"}, want: []bool{true, false}},
		"one namespace is served":   {served: "first", deleted: []string{"first"}, want: []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			c, cluster := bench(t, class("first"), class("second"), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "third", Name: "s", Finalizers: []string{v1alpha1.SecretFinalizerName},
					Annotations: map[string]string{v1alpha1.AnnotationSharedWith: "first, second"},
				},
			})
			defer end(c)
			c.cfg.Namespace = tc.served
			for i, namespace := range tc.deleted {
				_, err1 := c.reconcileSecret(t.Context(), types.NamespacedName{Namespace: "third", Name: "s"})
				_, err2 := c.reconcileClass(t.Context(), types.NamespacedName{Namespace: namespace, Name: "c"})
				if err := errors.Join(err1, err2); err != nil {
					t.Fatal(err)
				}
				if left := cluster.Get("machineclasses", namespace, "c"); left != nil {
					t.Errorf("the class of %s still has %v", namespace, left.GetFinalizers())
				}
				if hasFinalizer := len(finalizers(t, cluster, "secrets", "third", "s")) > 0; hasFinalizer != tc.want[i] {
					t.Errorf("after the deletion of the class in %s the Secret has our finalizer: %t, want %t", namespace, hasFinalizer, tc.want[i])
				}
			}
		})
	}
}

func machine(name, class, vm string) *v1alpha1.Machine {
	return &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name},
		Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Name: class}, ProviderID: vm},
	}
}

// end ends a controller that was never run: its queues run from the start.
func end(c *Controller) {
	ended, end := context.WithCancel(context.Background())
	end()
	c.Run(ended)
}

func TestSecretsAreSweptWhenSlotsWereOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, cluster := bench(t, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s", Finalizers: []string{v1alpha1.SecretFinalizerName}},
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.Run(ctx)
		}()
		var sweeps []time.Duration
		start := time.Now()
		expect := func(d time.Duration, want ...time.Duration) {
			t.Helper()
			for end := time.Now().Add(d); time.Now().Before(end); {
				time.Sleep(time.Second / 4)
				synctest.Wait()
				if cluster.Count("list secrets") > 0 {
					sweeps = append(sweeps, time.Since(start))
				}
				cluster.Forget()
			}
			if !slices.Equal(sweeps, want) {
				t.Errorf("swept at %v, want %v", sweeps, want)
			}
			sweeps = nil
		}
		expect(5 * time.Second) // no sweep at the start: no slot is held
		for range 3 {
			c.Opened()
			time.Sleep(sweepGather / 4)
		}
		expect(5*time.Second, 6*time.Second)
		if left := finalizers(t, cluster, "secrets", "n", "s"); len(left) > 0 {
			t.Errorf("finalizers %v, want none: no class names the Secret", left)
		}
		c.Opened()
		expect(2*time.Minute, 66*time.Second)
		expect(2*time.Hour, 66*time.Second+sweepEvery+sweepGather, 66*time.Second+2*(sweepEvery+sweepGather))
		stop()
		<-ended
	})
}

// Where access is by namespace, a list of all Secrets is forbidden, and one namespace that is
// forbidden does not keep the others: it alone is listed again, more and more rarely.
func TestSweepOfNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := func(namespace string) *corev1.Secret {
			return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "s", Finalizers: []string{v1alpha1.SecretFinalizerName}}}
		}
		c, cluster := bench(t, secret("a"), secret("b"), secret("c"))
		c.cfg.Namespaces = func() []string { return []string{"a", "b"} }
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.Run(ctx)
		}()
		lists := map[string]int{}
		cluster.Fault(func(r apiserver.Request) error {
			if r.Verb == "list" && r.Resource == "secrets" {
				lists[r.Namespace]++
			}
			if r.Verb == "list" && r.Resource == "secrets" && r.Namespace != "b" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", nil)
			}
			return nil
		})
		c.Opened()
		time.Sleep(2 * sweepGather)
		synctest.Wait()
		for namespace, want := range map[string]int{"a": 1, "b": 0, "c": 1} {
			if left := finalizers(t, cluster, "secrets", namespace, "s"); len(left) != want {
				t.Errorf("Secret of %s: finalizers %v, want %d", namespace, left, want)
			}
		}
		time.Sleep(40 * time.Minute)
		synctest.Wait()
		if lists["a"] != 6 || lists["b"] != 1 {
			t.Errorf("in 40 min: %v lists of Secrets, want 6 of a, after 1, 2, 4, 8 and 16 min, and one of b", lists)
		}
		stop()
		<-ended
	})
}
