//go:build e2e

package chaos

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// TestKillAtEachCallAtAzure is the same with the driver of Azure, in a separate process: a call
// that was sent goes on there, or is cancelled in the middle.
func TestKillAtEachCallAtAzure(t *testing.T) {
	t.Parallel()
	killAtEachCall(t, steppedCloud{
		options: harness.Options{Clouds: harness.AzureClouds + " --create-time=300ms --delete-time=300ms", Drivers: harness.AzureDrivers},
		prepare: func(ctx context.Context, lab *harness.Lab, namespace string) error {
			return lab.PrepareAzure(ctx, namespace)
		},
		oneVM: (*stepper).oneVMAtAzure,
		empty: emptyAzure,
	})
}

// oneVMAtAzure is oneVM for a machine at Azure.
func (s *stepper) oneVMAtAzure() {
	s.Helper()
	azure, err := s.lab.Azure()
	s.must(err)
	all, err := azure.Inventory(s.ctx)
	s.must(err)
	if err := all.OneVMEach(s.uid); err != nil {
		s.Error(err)
	}
}

// emptyAzure returns an error while there is a VM, a network interface or a disk at Azure.
func emptyAzure(ctx context.Context, lab *harness.Lab) error {
	azure, err := lab.Azure()
	if err != nil {
		return err
	}
	all, err := azure.Inventory(ctx)
	if err == nil && len(all.Resources) > 0 {
		err = fmt.Errorf("at Azure there are %+v", all.Resources)
	}
	return err
}

// mostRequests is more than the driver makes in the life of a machine.
const mostRequests = 60

// TestKillAtEachRequestToAzure kills the fleet while the driver, in a separate process, waits for
// the answer to a request: at each request in the life of a machine, before its effect and after
// it. The call of the driver ends there, in the middle, and the next process goes on.
func TestKillAtEachRequestToAzure(t *testing.T) {
	if testing.Short() {
		t.Skip("part of long runs")
	}
	t.Parallel()
	b := &bed{namespace: "requests", slots: 8}
	b.startLab(t, harness.Options{
		Clouds: harness.AzureClouds + " --create-time=100ms --delete-time=100ms", Drivers: harness.AzureDrivers, Clusters: 1,
		CloudsimFlags: "--boot-time=100ms", FleetFlags: fmt.Sprintf("--slots=%d", b.slots),
	})
	if err := errors.Join(b.lab.PrepareAzure(b.ctx, b.namespace), b.lab.WaitHeld(b.ctx, b.slots)); err != nil {
		t.Fatal(err)
	}
	azure, err := b.lab.Azure()
	if err != nil {
		t.Fatal(err)
	}
	var uids []string
	for _, after := range []bool{false, true} {
		for number := 1; ; number++ {
			uid, killed := b.liveAtAzure(t, azure, number, after)
			uids = append(uids, uid)
			if !killed {
				t.Logf("killed at each of %d requests, after their effect: %t", number-1, after)
				if number < 8 { // six of a create, and two of a delete
					t.Errorf("a life has %d requests, want at least 8", number-1)
				}
				break
			}
			if number == mostRequests {
				t.Fatalf("a life has more than %d requests", mostRequests)
			}
		}
	}
	if err := harness.Eventually(b.ctx, "nothing is left", func(ctx context.Context) error {
		return errors.Join(allDeleted(ctx, b.lab, b.namespace), emptyAzure(ctx, b.lab))
	}); err != nil {
		t.Fatal(err)
	}
	all, err := azure.Inventory(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := all.OneVMEach(uids...); err != nil {
		t.Error(err)
	}
}

// liveAtAzure creates a machine and deletes it when it runs. The fleet is killed when the request
// with that number has arrived. It returns the UID of the machine, and whether the fleet was
// killed.
func (b *bed) liveAtAzure(t *testing.T, azure *harness.Azure, number int, after bool) (uid string, killed bool) {
	t.Helper()
	api := b.lab.Machines.MachineV1alpha1().Machines(b.namespace)
	if err := azure.Stop(b.ctx, number, after); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("before-%d", number)
	if after {
		name = fmt.Sprintf("after-%d", number)
	}
	m, err := api.Create(b.ctx, &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: harness.ClassName}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// await waits until the machine is as it should, and kills the fleet meanwhile if the request
	// arrives.
	await := func(what string, check func(context.Context) error) {
		t.Helper()
		if err := harness.Eventually(b.ctx, what, func(ctx context.Context) error {
			all, err := azure.Inventory(ctx)
			if err == nil && all.Stopped && !killed {
				killed = true
				err = errors.Join(b.lab.Do(ctx, harness.Fleet, harness.Kill), b.lab.Do(ctx, harness.Fleet, harness.Start))
			}
			return errors.Join(err, check(ctx))
		}); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	await(name+" runs", func(ctx context.Context) error {
		now, err := api.Get(ctx, name, metav1.GetOptions{})
		if err == nil && now.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
			err = errors.New(story(now))
		}
		return err
	})
	if err := api.Delete(b.ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(name+" is gone", func(ctx context.Context) error {
		now, err := api.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			err = errors.New(story(now))
		}
		return err
	})
	t.Logf("request %d, after its effect: %t: killed: %t, %.1f s", number, after, killed, time.Since(began).Seconds())
	return string(m.UID), killed
}
