package aws

import (
	"fmt"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/aws/ec2test"
)

// life is the life of one machine, whose driver is killed at a request and starts again without a
// memory.
type life struct {
	*world
	t      *testing.T
	target driver.Target
	name   string
}

// attempts is how often a step is tried.
const attempts = 100

// until repeats a step until it is done. After each failure the process is another one.
func (l *life) until(step string, do func() (done bool, err error)) {
	l.t.Helper()
	for range attempts {
		done, err := do()
		if living := len(l.Living()); living > 1 {
			l.t.Fatalf("%s: after %s the machine has %d VMs", l.name, step, living)
		}
		if done {
			return
		}
		if err != nil {
			l.driver = l.site.driver(l.t, func(cfg *Config) { cfg.Clock = l.clock })
		}
		l.wait(5 * time.Second)
	}
	l.t.Fatalf("%s: %s does not end", l.name, step)
}

// create creates the VM. A process that is killed in the call records nothing.
func (l *life) create() {
	l.t.Helper()
	l.until("create", func() (bool, error) {
		resp, err := l.driver.CreateMachine(l.t.Context(), driver.CreateMachineRequest{Target: l.target, UserData: []byte("data")})
		if err == nil {
			l.target.Machine.Spec.ProviderID, l.target.Machine.Status.LastKnownState = resp.ProviderID, resp.LastKnownState
		}
		return err == nil, err
	})
}

// settle initializes the VM until its status is OK.
func (l *life) settle() {
	l.t.Helper()
	l.until("status", func() (bool, error) {
		_, err := l.driver.GetMachineStatus(l.t.Context(), driver.GetMachineStatusRequest{Target: l.target})
		if driver.CodeOf(err) == driver.Uninitialized {
			_, err = l.driver.InitializeMachine(l.t.Context(), driver.InitializeMachineRequest{Target: l.target})
			return false, err
		}
		if driver.CodeOf(err) == driver.NotFound {
			l.t.Fatalf("%s: the VM is absent", l.name)
		}
		return err == nil, err
	})
}

// remove deletes the VM. Afterwards nothing is left, also of what the cloud did not show at first.
func (l *life) remove() {
	l.t.Helper()
	l.until("delete", func() (bool, error) {
		resp, err := l.driver.DeleteMachine(l.t.Context(), driver.DeleteMachineRequest{Target: l.target})
		return resp.Gone, err
	})
	l.wait(time.Hour)
	if living, rest := l.Living(), l.Attachments(); len(living)+len(rest) > 0 {
		l.t.Fatalf("%s: %d VMs, and %+v, after the delete", l.name, len(living), rest)
	}
}

// The driver is killed at each of its requests in turn: before the cloud has carried it out, and
// after. The machine never has two VMs, and nothing is left in the end.
func TestKilledAtEveryRequest(t *testing.T) {
	lives := map[string]func(*life){
		"create, initialize, delete": func(l *life) { l.create(); l.settle(); l.remove() },
		"delete right after one attempt to create": func(l *life) {
			_, _ = l.driver.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: l.target, UserData: []byte("data")})
			l.driver = l.site.driver(t, func(cfg *Config) { cfg.Clock = l.clock })
			l.remove()
		},
		"fails part-way, create, delete": func(l *life) {
			heal := l.Fail(ec2test.Failure{Partly: true})
			for range 2 {
				_, _ = l.driver.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: l.target, UserData: []byte("data")})
			}
			heal()
			l.create()
			l.remove()
		},
	}
	for name, run := range lives {
		for _, hidden := range []time.Duration{0, 20 * time.Second} {
			for _, after := range []bool{false, true} {
				killed := killedAtEvery(t, fmt.Sprintf("%s, shown after %s, after the effect: %t", name, hidden, after), hidden, after, run)
				if killed < 3 {
					t.Errorf("%s: killed at %d requests only", name, killed)
				}
			}
		}
	}
}

// killedAtEvery runs a life once for each of its requests, and returns their number.
func killedAtEvery(t *testing.T, name string, hidden time.Duration, after bool, run func(*life)) (killed int) {
	t.Helper()
	for n := 1; ; n++ {
		w := newWorld(t, func(s *ec2test.Settings) { s.VisibleAfter, s.StopTime = hidden, 3*time.Second })
		w.Cut(n, after)
		run(&life{world: w, t: t, target: w.target(), name: fmt.Sprintf("%s, killed at request %d", name, n)})
		if len(w.Requests()) < n {
			return n - 1
		}
		if n == attempts {
			t.Fatalf("%s has more than %d requests", name, n)
		}
	}
}
