package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	// sideProvider is a provider whose driver is a separate process, and the name of its class.
	sideProvider = "side"
	// sideRate is how many machines of it are created in a second.
	sideRate = 5
	// killEvery is the time between two kills of that process.
	killEvery = 5 * time.Second
)

// measureKilledDriver measures how long creates of one provider take while the process of another
// provider's driver is killed and started again, and before. In both cases as many machines of the
// other provider are created in a second. It needs a separate lab, since drivers are those of a
// lab.
func measureKilledDriver(ctx context.Context, dir string, creates int, s sample) (err error) {
	ctx, cancel := context.WithTimeout(ctx, rollTimeout)
	defer cancel()
	lab, err := harness.Up(ctx, harness.Options{
		Dir:      filepath.Join(dir, "driver"),
		Replicas: fleetSize,
		Drivers:  sideProvider + "=simulated-driver --provider=" + sideProvider + " --endpoints={cloud}",
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Down(context.WithoutCancel(ctx))) }()
	if err := errors.Join(lab.WaitHeld(ctx, slots), lab.Cloud.Set(ctx, settings), lab.Prepare(ctx, sideProvider, "")); err != nil {
		return err
	}
	class := harness.Class(sideProvider, "")
	class.Name, class.Provider = sideProvider, sideProvider
	if _, err := lab.Machines.MachineV1alpha1().MachineClasses(sideProvider).Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create a MachineClass: %w", err)
	}
	before, err := createDuring(ctx, lab, "undisturbed", creates, func(context.Context) error { return nil })
	if err != nil {
		return err
	}
	kills := 0
	during, err := createDuring(ctx, lab, "killed", creates, func(ctx context.Context) error {
		for every := time.NewTicker(killEvery); ; kills++ {
			select {
			case <-ctx.Done():
				every.Stop()
				return nil
			case <-every.C:
			}
			for _, action := range []string{harness.Kill, harness.Start} {
				if err := lab.Do(context.WithoutCancel(ctx), "driver-"+sideProvider, action); err != nil {
					return err
				}
			}
		}
	})
	if err != nil {
		return err
	}
	if kills == 0 {
		return fmt.Errorf("expected the driver to be killed while %d machines are created, got no kill; create more", creates)
	}
	ratio := medianOf(during) / medianOf(before)
	fmt.Printf("driver of another provider killed %d times: creates take %.3f s, median of %d; before: %.3f s, of %d\n",
		kills, medianOf(during), len(during), medianOf(before), len(before))
	s["create_while_driver_killed_ratio"] = pair{value: ratio}
	all, err := lab.Machines.MachineV1alpha1().Machines(sideProvider).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	return lab.Running(ctx, sideProvider, len(all.Items)) // those of the driver that was killed, too
}

// createDuring creates machines of the other provider while disturb works, and returns how long
// those of the replicas' own drivers take meanwhile to get their VM, one after the other, in
// seconds.
func createDuring(
	ctx context.Context, lab *harness.Lab, name string, creates int, disturb func(context.Context) error,
) (times []float64, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var disturbance sync.WaitGroup
	var disturbed, created error
	disturbance.Go(func() { disturbed = disturb(ctx) })
	disturbance.Go(func() {
		defer end()
		created = createSide(ctx, lab, name, creates)
	})
	for i := 0; ctx.Err() == nil; i++ {
		own, start := fmt.Sprintf("own-%s-%d", name, i), time.Now()
		if err = errors.Join(createMachine(ctx, lab, own, harness.ClassName), hasVM(ctx, lab, own)); err == nil {
			times = append(times, time.Since(start).Seconds())
		} else if ctx.Err() == nil {
			end()
			disturbance.Wait()
			return nil, err
		}
	}
	disturbance.Wait()
	return times, errors.Join(disturbed, created)
}

// createSide creates machines of the other provider at sideRate.
func createSide(ctx context.Context, lab *harness.Lab, name string, creates int) error {
	pace := time.NewTicker(time.Second / sideRate)
	defer pace.Stop()
	for i := range creates {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pace.C:
		}
		if err := createMachine(ctx, lab, fmt.Sprintf("%s-%d", name, i), sideProvider); err != nil {
			return err
		}
	}
	return nil
}

// createMachine creates a machine of a class.
func createMachine(ctx context.Context, lab *harness.Lab, name, class string) error {
	_, err := lab.Machines.MachineV1alpha1().Machines(sideProvider).Create(ctx, &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: sideProvider, Name: name},
		Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: class}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create a machine: %w", err)
	}
	return nil
}

// hasVM waits until a machine has a VM.
func hasVM(ctx context.Context, lab *harness.Lab, name string) error {
	const look = 20 * time.Millisecond
	return harness.EventuallyEvery(ctx, look, name+" has a VM", func(ctx context.Context) error {
		m, err := lab.Machines.MachineV1alpha1().Machines(sideProvider).Get(ctx, name, metav1.GetOptions{})
		if err == nil && m.Spec.ProviderID == "" {
			err = fmt.Errorf("its last operation is %+v", m.Status.LastOperation)
		}
		return err
	})
}
