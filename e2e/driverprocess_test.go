//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// sideProvider is a provider whose driver is a process of its own.
const sideProvider = "side"

// TestDriverProcessIsKilled: one fleet serves two providers. The process of one driver is killed every 5 s during 60 creates: all of its
// machines run in the end, with one VM each, and machines of the other provider are created meanwhile. The ratio of their create times is
// logged; it is that of the drivers only where nothing else runs, as in the benchmark with 200 creates (e2e/bench), which has its bar.
func TestDriverProcessIsKilled(t *testing.T) {
	t.Parallel()
	const (
		machines, rate = 60, 2 // and so many a second
		calm           = 20    // machines that are created before, while the process lives
		killEvery      = 5 * time.Second
	)
	lab := startLab(t, "driver-process", func(o *harness.Options) {
		o.Replicas = 2
		o.CloudsimFlags = "--create-latency=500ms"
		o.Drivers = sideProvider + "=simulated-driver --provider=" + sideProvider + " --endpoints={cloud}"
	})
	s := newSpace(t, lab, "driver-process", "")
	s.must(held(t.Context(), lab))
	class := harness.Class(s.name, "")
	class.Name, class.Provider = sideProvider, sideProvider
	_, err := s.api().MachineClasses(s.name).Create(t.Context(), class, metav1.CreateOptions{})
	s.must(err)

	before := s.measure("calm", func() { s.createSide("calm", calm, time.Second/rate) })
	s.running("calm", calm)

	var kills atomic.Int64
	during := s.measure("killed", func() {
		ctx, enough := context.WithCancel(t.Context())
		var killer sync.WaitGroup
		killer.Go(func() {
			for every := time.NewTicker(killEvery); ; kills.Add(1) {
				select {
				case <-ctx.Done():
					every.Stop()
					return
				case <-every.C:
				}
				for _, action := range []string{harness.Kill, harness.Start} {
					if err := lab.Do(t.Context(), "driver-"+sideProvider, action); err != nil {
						t.Error(err)
					}
				}
			}
		})
		s.createSide("killed", machines, time.Second/rate)
		enough()
		killer.Wait()
	})
	s.atLeastOne(fmt.Sprintf(`mcf_driver_calls_total{code="%s",operation="%s",provider="%s"}`, driver.Unavailable, driver.OpCreate, sideProvider))
	s.running("killed", machines)
	vms := map[string]int{}
	for _, vm := range s.history() {
		vms[vm.Tags[simulated.TagMachineUID]]++
	}
	all, err := s.machines(t.Context(), "")
	s.must(err)
	for _, m := range all {
		if n := vms[string(m.UID)]; n != 1 {
			t.Errorf("machine %s got %d VMs, want 1", m.Name, n)
		}
	}
	if len(vms) != len(all) {
		t.Errorf("%d machines have VMs, want %d", len(vms), len(all))
	}
	t.Logf("%d kills; create time of the other provider: median %v of %d before, %v of %d during: ratio %.3f",
		kills.Load(), median(before), len(before), median(during), len(during), median(during).Seconds()/median(before).Seconds())
	for _, m := range all { // one by one: a request for all of them takes longer than an API server allows
		s.remove("machines", m.Name)
	}
	s.gone()
}

// TestDriverProcessIsAway: a machine reports that its driver's process does not answer, and the machine of another provider is created.
// When the process is back, both run.
func TestDriverProcessIsAway(t *testing.T) {
	t.Parallel()
	lab := startLab(t, "driver-away", func(o *harness.Options) {
		o.Drivers = sideProvider + "=simulated-driver --provider=" + sideProvider + " --endpoints={cloud}"
	})
	s := newSpace(t, lab, "driver-away", "")
	class := harness.Class(s.name, "")
	class.Name, class.Provider = sideProvider, sideProvider
	_, err := s.api().MachineClasses(s.name).Create(t.Context(), class, metav1.CreateOptions{})
	s.must(err)
	s.must(lab.Do(t.Context(), "driver-"+sideProvider, harness.Kill))
	s.createSide("side", 1, 0)
	s.createMachine("own", labeled("own"))
	s.running("own", 1)
	s.eventually("the machine reports that its driver is away", func(ctx context.Context) error {
		machines, err := s.machines(ctx, "side")
		if err != nil {
			return err
		}
		op := machines[0].Status.LastOperation
		if op.ErrorCode != driver.Unavailable.String() || !strings.Contains(op.Description, "driver of provider "+sideProvider) {
			return fmt.Errorf("its last operation is %+v", op)
		}
		return nil
	})
	s.must(lab.Do(t.Context(), "driver-"+sideProvider, harness.Start))
	s.running("side", 1)
	s.remove("machines", "side-0")
	s.remove("machines", "own")
	s.gone()
}

// labeled puts a machine into a pool.
func labeled(pool string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Labels = map[string]string{v1alpha1.LabelName: pool} }
}

// createSide creates machines of the provider whose driver is a process of its own, one after the other.
func (s *space) createSide(pool string, n int, every time.Duration) {
	s.Helper()
	pace := time.NewTicker(max(every, time.Millisecond))
	defer pace.Stop()
	for i := range n {
		<-pace.C
		s.createMachine(fmt.Sprintf("%s-%d", pool, i), labeled(pool), func(m *v1alpha1.Machine) { m.Spec.Class.Name = sideProvider })
	}
}

// measure returns how long the other provider takes to create VMs, one after the other, while work is done.
func (s *space) measure(pool string, work func()) (times []time.Duration) {
	s.Helper()
	worked := make(chan struct{})
	go func() { defer close(worked); work() }()
	for i := 0; ; i++ {
		select {
		case <-worked:
			return times
		default:
		}
		name := fmt.Sprintf("own-%s-%d", pool, i)
		s.createMachine(name, labeled("own"))
		start := time.Now()
		err := harness.EventuallyEvery(s.Context(), 20*time.Millisecond, name+" has a VM", func(ctx context.Context) error {
			m, err := s.api().Machines(s.name).Get(ctx, name, metav1.GetOptions{})
			if err == nil && m.Spec.ProviderID == "" {
				err = fmt.Errorf("its last operation is %+v", m.Status.LastOperation)
			}
			return err
		})
		s.must(err)
		times = append(times, time.Since(start))
	}
}

// median returns the median of some times.
func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[len(sorted)/2]
}
