package machinesim

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

// The API servers.
const (
	control = "control"
	target  = "target"
)

// checkServers checks both API servers.
func (p *process) checkServers() {
	settings := reach.Settings{Timeout: 30 * time.Second, Period: time.Minute}
	for _, name := range []string{control, target} {
		if name == p.cut {
			p.servers[name] = p.servers[name].Failed(p.clock(), p.clock(), settings)
		} else {
			p.servers[name] = p.servers[name].Answered(p.clock())
		}
	}
}

// reach returns what the process knows of both.
func (p *process) reach() reach.Fact {
	if p.unchecked {
		return reach.Fact{}
	}
	return reach.Both(p.servers[control].Fact(), p.servers[target].Fact())
}

// needsTarget reports whether an action needs the API server of the target cluster.
func needsTarget(action lifecycle.Action) bool {
	return slices.Contains([]lifecycle.Action{
		lifecycle.CreateToken, lifecycle.ProlongToken, lifecycle.DropToken, lifecycle.FindNode, lifecycle.ClaimNode, lifecycle.SetTerminating,
		lifecycle.DrainNode, lifecycle.DeleteNode,
	}, action)
}

// blackout makes all Nodes not Ready, as their kubelets cannot reach the API server, cuts an API
// server off a minute later, for 10 minutes, and has the Nodes report 40 s after that.
func (w *world) blackout(server string, during func()) {
	for _, name := range w.alive() {
		w.sick[name] = true
	}
	w.run(time.Minute)
	w.cut = server
	w.run(5 * time.Minute)
	during()
	w.run(5 * time.Minute)
	w.cut = ""
	w.run(40 * time.Second)
	clear(w.sick)
	w.run(20 * time.Second)
}

// TestBlackout: an API server is away for 10 min, as long as the health timeout, and no machine
// fails, is deleted or is replaced, although no circuit breaker opens. A minute later all machines
// run.
func TestBlackout(t *testing.T) {
	for _, server := range []string{target, control} {
		for name, during := range map[string]func(w *world){
			"no other fault":       func(*world) {},
			"all replicas restart": func(w *world) { w.restart() },
			"slots move":           func(w *world) { w.move(0); w.move(1) },
		} {
			t.Run(server+"/"+name, func(t *testing.T) {
				deployments, machines := 4, 20
				if name == "no other fault" && !testing.Short() {
					deployments, machines = 10, 200
				}
				w := newWorld(t, 1, deployments, int32(machines/deployments), 3)
				w.limits.Thresholds.Percent = 100
				before, vms := w.alive(), len(w.vms)
				w.blackout(server, func() { during(w) })
				if got := w.running(); got != machines {
					t.Errorf("%d machines run a minute after the blackout, want %d", got, machines)
				}
				w.run(15 * time.Minute)
				if after := w.alive(); !maps.Equal(before, after) || w.failedMachines > 0 || len(w.vms) != vms {
					t.Errorf("%d machines failed, %d of %d VMs exist, and machines were replaced: %v",
						w.failedMachines, len(w.vms), vms, !maps.Equal(before, after))
				}
				w.oneDies()
			})
		}
	}
}

// TestReplicasThatStartAfterABlackout did not observe it. The Nodes report before they act on what
// they find.
func TestReplicasThatStartAfterABlackout(t *testing.T) {
	w := newWorld(t, 1, 4, 5, 2)
	w.limits.Thresholds.Percent = 100
	before := w.alive()
	for _, name := range before {
		w.sick[name] = true
	}
	w.run(time.Minute)
	w.cut = target
	w.run(10 * time.Minute)
	w.cut = ""
	w.restart()
	w.run(40 * time.Second)
	clear(w.sick)
	w.run(20 * time.Second)
	if after := w.alive(); !maps.Equal(before, after) || w.failedMachines > 0 || w.running() != 20 {
		t.Errorf("%d machines failed, and %d of 20 run", w.failedMachines, w.running())
	}
}

// TestBlackoutWithoutChecks shows that the checks protect the machines: without them some fail.
func TestBlackoutWithoutChecks(t *testing.T) {
	for _, server := range []string{target, control} {
		t.Run(server, func(t *testing.T) {
			w := newWorld(t, 1, 4, 5, 2)
			w.limits.Thresholds.Percent, w.unchecked = 100, true
			w.blackout(server, func() {})
			if w.failedMachines == 0 {
				t.Error("no machine failed: this blackout shows nothing")
			}
		})
	}
}

// TestDeletionDuringABlackout: a Machine that its user deletes keeps its VM until its Node can be
// drained.
func TestDeletionDuringABlackout(t *testing.T) {
	w := newWorld(t, 1, 1, 5, 1)
	w.cut = target
	w.run(time.Minute)
	m := sorted(w.machines.now())[0]
	vms := len(w.vms)
	w.machines.delete(m, w.now)
	w.run(3 * time.Hour)
	if _, exists := w.vms[m.UID]; !exists || len(w.vms) != vms {
		t.Errorf("the VM of the machine exists: %v; there are %d VMs, want %d: no other one may be created meanwhile", exists, len(w.vms), vms)
	}
	left := w.machines.now()[m.Name]
	if left.Status.LastOperation.State != v1alpha1.MachineStateFailed {
		t.Errorf("it reports %+v", left.Status.LastOperation)
	}
	w.cut = ""
	w.run(5 * time.Minute)
	if _, exists := w.vms[m.UID]; exists || w.running() != 5 {
		t.Errorf("after the blackout its VM exists: %v; %d machines run, want 5", exists, w.running())
	}
}
