package machineclass

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machinefake "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/fake"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a controller before a cluster with the objects.
func bench(t *testing.T, secrets kubernetes.Interface, metadata metadata.Interface, objs ...runtime.Object) (*Controller, *machinefake.Clientset) {
	t.Helper()
	machines := machinefake.NewSimpleClientset(objs...)
	c, err := New(Config{
		Machines: machines.MachineV1alpha1(), Secrets: secrets.CoreV1(), Metadata: metadata,
		View: objects.NewView(), Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, machines
}

// Another replica's machines may use a class. When it is to go, nobody tells that the last of them has gone.
func TestAClassWaitsForUsersElsewhere(t *testing.T) {
	key := types.NamespacedName{Namespace: "n", Name: "c"}
	machine := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m"},
		Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Name: "c"}},
	}
	for name, tc := range map[string]struct {
		goes bool
		wait time.Duration
	}{
		"it is to go": {goes: true, wait: userPoll},
		"it stays":    {},
	} {
		t.Run(name, func(t *testing.T) {
			class := &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", Finalizers: []string{v1alpha1.FinalizerName}}}
			if tc.goes {
				class.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			}
			c, machines := bench(t, fake.NewClientset(), nil, class, machine)
			defer func() { // its queues run from the start
				ended, end := context.WithCancel(context.Background())
				end()
				c.Run(ended)
			}()
			if result, err := c.reconcileClass(t.Context(), key); err != nil || result.RequeueAfter != tc.wait {
				t.Errorf("looked at again after %v (%v), want %v", result.RequeueAfter, err, tc.wait)
			}
			api := machines.MachineV1alpha1()
			if err := api.Machines("n").Delete(t.Context(), "m", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if result, err := c.reconcileClass(t.Context(), key); err != nil || result.RequeueAfter != 0 {
				t.Errorf("looked at again after %v (%v), want never", result.RequeueAfter, err)
			}
			if left, err := api.MachineClasses("n").Get(t.Context(), "c", metav1.GetOptions{}); err != nil || len(left.Finalizers) > 0 {
				t.Errorf("finalizers %v (%v), want none", left.Finalizers, err)
			}
		})
	}
}

func TestSecretsAreSweptWhenSlotsWereOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := metadatafake.NewTestScheme()
		if err := metav1.AddMetaToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		meta := metav1.ObjectMeta{Namespace: "n", Name: "s", Finalizers: []string{v1alpha1.SecretFinalizerName}}
		names := metadatafake.NewSimpleMetadataClient(scheme, &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: meta,
		})
		secrets := fake.NewClientset(&corev1.Secret{ObjectMeta: meta})
		c, _ := bench(t, secrets, names)
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
				for range names.Actions() {
					sweeps = append(sweeps, time.Since(start))
				}
				names.ClearActions()
			}
			if !slices.Equal(sweeps, want) {
				t.Errorf("swept at %v, want %v", sweeps, want)
			}
			sweeps = nil
		}
		expect(5 * time.Second) // nothing at the start: no slot is held
		for range 3 {
			c.Opened()
			time.Sleep(sweepGather / 4)
		}
		expect(5*time.Second, 6*time.Second)
		if left, err := secrets.CoreV1().Secrets("n").Get(ctx, "s", metav1.GetOptions{}); err != nil || len(left.Finalizers) > 0 {
			t.Errorf("finalizers %v (%v), want none: no class names the Secret", left.Finalizers, err)
		}
		c.Opened()
		expect(2*time.Minute, 66*time.Second)
		expect(2*time.Hour, 66*time.Second+sweepEvery+sweepGather, 66*time.Second+2*(sweepEvery+sweepGather))
		stop()
		<-ended
	})
}
