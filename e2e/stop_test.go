//go:build e2e

package e2e

import (
	"fmt"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
)

// stops deletes machines whose VMs stop slowly. The cloud answers at once, and is then called less and less often.
func (s *space) stops() {
	const machines, stop = 10, 8 * time.Second
	s.must(s.lab.Cloud.Set(s.Context(), fmt.Sprintf(`{"stopTime":{"mean":%q,"spread":"0s"}}`, stop)))
	defer func() { s.must(s.lab.Cloud.Set(s.Context(), `{"stopTime":{"mean":"0s","spread":"0s"}}`)) }()
	s.deploy("pool", machines)
	s.running("pool", machines)
	s.joined()
	pool, err := s.machines(s.Context(), "pool")
	s.must(err)
	requested := map[string]int{}
	for _, m := range pool {
		requested[m.Name] = 0
	}
	begin := time.Now()
	s.remove("machinedeployments", "pool")
	s.gone()
	took := time.Since(begin)
	s.Logf("%d machines whose VMs take %s to stop were gone after %s", machines, stop, took)
	if took < stop {
		s.Errorf("the machines were gone after %s, before their VMs can have stopped", took)
	}
	for _, vm := range s.history() {
		if vm.State != cloudapi.StateTerminated {
			s.Errorf("VM %s is %s, and its machine is gone", vm.Name, vm.State)
		}
	}
	calls, err := s.lab.Cloud.Calls()
	s.must(err)
	for _, c := range calls {
		if _, ours := requested[c.Machine]; ours && c.Operation == cloudapi.OpDeleteInstance && c.Start.After(begin) {
			requested[c.Machine]++
		}
	}
	s.Logf("calls for each: %v", requested)
	for machine, times := range requested {
		if times < 3 || times > 17 {
			s.Errorf("the cloud was called %d times to delete the VM of %s, want about 14", times, machine)
		}
	}
}
