//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// faults are the faults of the clouds of labs, by lab and zone. Each test has a zone of its own, so that they do not disturb each
// other; the zone "" means all.
var faults = struct {
	sync.Mutex
	byZone map[string]map[string]cloudapi.Fault
}{byZone: map[string]map[string]cloudapi.Fault{}}

// fault makes every create in the zone fail, or what change sets instead, until the returned function is called or the test ends.
func (s *space) fault(zone string, kind cloudapi.FaultKind, change ...func(*cloudapi.Fault)) (end func()) {
	s.Helper()
	fault := cloudapi.Fault{
		Operations: []cloudapi.Operation{cloudapi.OpCreateInstance}, Kind: kind, Rate: 1,
		RetryAfter: cloudapi.Duration(time.Second), Hold: cloudapi.Duration(time.Second),
	}
	if zone != "" {
		fault.Zones = []string{zone}
	}
	for _, f := range change {
		f(&fault)
	}
	set := func(ctx context.Context, change func(map[string]cloudapi.Fault)) error {
		faults.Lock()
		defer faults.Unlock()
		if faults.byZone[s.lab.Dir] == nil {
			faults.byZone[s.lab.Dir] = map[string]cloudapi.Fault{}
		}
		change(faults.byZone[s.lab.Dir])
		patch, err := json.Marshal(map[string]any{"faults": slices.Collect(maps.Values(faults.byZone[s.lab.Dir]))})
		if err != nil {
			return err
		}
		return s.lab.Cloud.Set(ctx, string(patch))
	}
	end = func() {
		s.Helper()
		if err := set(context.WithoutCancel(s.Context()), func(all map[string]cloudapi.Fault) { delete(all, zone) }); err != nil {
			s.Error(err)
		}
	}
	s.must(set(s.Context(), func(all map[string]cloudapi.Fault) { all[zone] = fault }))
	s.Cleanup(end)
	return end
}

func deletes(f *cloudapi.Fault) { f.Operations = []cloudapi.Operation{cloudapi.OpDeleteInstance} }

// quotaRetry is --resource-exhausted-retry in the lab of the faults: ten minutes are too long for a test.
const quotaRetry = 10 * time.Second

// faultKinds are all ways in which calls fail, each with a zone of its own.
var faultKinds = []struct {
	kind cloudapi.FaultKind
	zone string
	code driver.Code
}{
	{cloudapi.FaultThrottled, "sim-3a", driver.Unavailable},
	{cloudapi.FaultInternal, "sim-3b", driver.Internal},
	{cloudapi.FaultUnavailable, "sim-3c", driver.Unavailable},
	{cloudapi.FaultUnauthorized, "sim-3d", driver.Unauthenticated},
	{cloudapi.FaultForbidden, "sim-3e", driver.PermissionDenied},
	{cloudapi.FaultTimeoutBefore, "sim-3f", driver.Unavailable},
	{cloudapi.FaultTimeoutAfter, "sim-3g", driver.Unavailable},
	{cloudapi.FaultQuota, "sim-3h", driver.ResourceExhausted},
	{cloudapi.FaultNoCapacity, "sim-3i", driver.ResourceExhausted},
}

// TestCloudFaults makes the cloud fail in each way: at creates and at deletes, when VMs are initialized, and when they are looked
// up. Lasting faults are part of the controller's own tests, which run in virtual time.
func TestCloudFaults(t *testing.T) {
	t.Parallel()
	lab := startLab(t, "faults", func(o *harness.Options) { o.FleetFlags = "--resource-exhausted-retry=" + quotaRetry.String() })
	t.Run("Kinds", func(t *testing.T) {
		for _, f := range faultKinds {
			t.Run(string(f.kind), func(t *testing.T) {
				t.Parallel()
				s := newSpace(t, lab, "fault-"+string(f.kind), fmt.Sprintf(`{"zone":%q}`, f.zone))
				s.createsFail(f.zone, f.kind, f.code)
				s.deletesFail(f.zone, f.kind, f.code)
				s.reportedOnce(v1alpha1.EventCreateFailed, v1alpha1.EventDeleteFailed)
			})
		}
		for zone, kind := range map[string]cloudapi.FaultKind{"sim-2a": cloudapi.FaultInternal, "sim-2b": cloudapi.FaultTimeoutAfter} {
			t.Run("NotSetUp/"+string(kind), func(t *testing.T) {
				t.Parallel()
				spec := fmt.Sprintf(`{"zone":%q,"sourceDestCheck":false}`, zone)
				newSpace(t, lab, "not-set-up-"+string(kind), spec).notSetUp(zone, kind)
			})
		}
		t.Run("AsksForTime", func(t *testing.T) {
			t.Parallel()
			newSpace(t, lab, "asks-for-time", `{"zone":"sim-1b"}`).retryAfter("sim-1b")
		})
	})
	t.Run("Outage", func(t *testing.T) { newSpace(t, lab, "outage", "").outage() })
}

// createsFail makes three creates fail for a while. There are three VMs in the end and never more, the cloud is called less and
// less often, and the machines come up within one step after it works again.
func (s *space) createsFail(zone string, kind cloudapi.FaultKind, code driver.Code) {
	s.Helper()
	end := s.fault(zone, kind)
	s.deploy("pool", 3)
	tries, made := 2, 0
	if kind == cloudapi.FaultTimeoutAfter { // the next try looks the VM up first, and finds that of the earlier one
		tries, made = 1, 3
		s.counted("pool", 3)
	} else {
		s.fails("pool", 3, code, "code = ["+code.String()+"]")
	}
	failed := s.tried(cloudapi.OpCreateInstance, tries, s.ids("pool"))
	if got := len(s.history()); got != made {
		s.Errorf("the cloud has made %d VMs while it failed, want %d", got, made)
	}
	end()
	s.running("pool", 3)
	s.joined()
	s.reports("pool", 3)
	if got := len(s.history()); got != 3 {
		s.Errorf("the cloud has made %d VMs, want 3", got)
	}
	if made == 0 {
		s.recovered(cloudapi.OpCreateInstance, failed, usual(code))
	}
}

// deletesFail does the same with deletes: nothing is left in the end.
func (s *space) deletesFail(zone string, kind cloudapi.FaultKind, code driver.Code) {
	s.Helper()
	end := s.fault(zone, kind, deletes)
	uids := s.ids("pool")
	s.remove("machinedeployments", "pool")
	failed := s.tried(cloudapi.OpDeleteInstance, 2, uids)
	s.eventually("the machines report why they still exist", func(ctx context.Context) error {
		machines, err := s.machines(ctx, "pool")
		if err != nil {
			return err
		}
		var wrong complaints
		wrong.unless(len(machines) == 3, "there are %d machines", len(machines))
		for _, m := range machines {
			op := m.Status.LastOperation
			wrong.unless(op.Type == v1alpha1.MachineOperationDelete && op.State == v1alpha1.MachineStateFailed && op.ErrorCode == code.String(),
				"%s: last operation %+v", m.Name, op)
		}
		return wrong.err()
	})
	end()
	s.gone()
	s.recovered(cloudapi.OpDeleteInstance, failed, usual(code))
}

// counted waits until a pool has n machines in any phase.
func (s *space) counted(pool string, n int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s has %d machines", pool, n), func(ctx context.Context) error {
		machines, err := s.machines(ctx, pool)
		if err == nil && len(machines) != n {
			err = fmt.Errorf("it has %d", len(machines))
		}
		return err
	})
}

// ids of a pool's machines, as in the call log.
func (s *space) ids(pool string) []string {
	s.Helper()
	var ids []string
	for _, uid := range s.uids(pool) {
		ids = append(ids, string(uid))
	}
	return ids
}

// calls returns the calls of an operation for each of some machines, the first one first.
func (s *space) calls(op cloudapi.Operation, uids []string) map[string][]cloudapi.Call {
	s.Helper()
	all, err := s.lab.Cloud.Calls()
	s.must(err)
	found := map[string][]cloudapi.Call{}
	for _, call := range all {
		if uid := max(call.MachineUID, call.Token); call.Operation == op && slices.Contains(uids, uid) {
			found[uid] = append(found[uid], call)
		}
	}
	return found
}

// tried waits until a call has failed that often for each machine, and returns the failed calls.
func (s *space) tried(op cloudapi.Operation, tries int, uids []string) map[string][]cloudapi.Call {
	s.Helper()
	var failed map[string][]cloudapi.Call
	s.eventually(fmt.Sprintf("%s has failed %d times for each machine", op, tries), func(context.Context) error {
		failed = s.calls(op, uids)
		var wrong complaints
		for _, uid := range uids {
			wrong.unless(len(failed[uid]) >= tries, "it has %d times for %s", len(failed[uid]), uid)
			wrong.unless(!slices.ContainsFunc(failed[uid], func(c cloudapi.Call) bool { return c.Error == "" }), "it has worked for %s", uid)
		}
		return wrong.err()
	})
	return failed
}

// pace is the wait after the failure with that number, counted from 0.
type pace func(n int) time.Duration

// usual is the pace unless the cloud requests more time.
func usual(code driver.Code) pace {
	return func(n int) time.Duration {
		if code == driver.ResourceExhausted {
			return quotaRetry
		}
		return min(5*time.Second<<n, 3*time.Minute)
	}
}

// spaced checks that calls of which all but the last one have failed came no sooner than their pace. That they do not come later is tested
// in virtual time, in controllers/machine.
func (s *space) spaced(what string, calls []cloudapi.Call, pace pace) {
	s.Helper()
	for n := range len(calls) - 1 {
		got, want := calls[n+1].Start.Sub(calls[n].End), pace(n)
		if got < want {
			s.Errorf("%s: try %d came %s after the one before had failed, want at least %s", what, n+2, got, want)
		}
	}
}

// recovered checks that each machine's calls kept the pace, and that one call has changed something. Calls that had an effect and returned
// an error count, too.
func (s *space) recovered(op cloudapi.Operation, failed map[string][]cloudapi.Call, pace pace) {
	s.Helper()
	for uid, calls := range s.calls(op, slices.Collect(maps.Keys(failed))) {
		works := slices.IndexFunc(calls, func(c cloudapi.Call) bool { return c.Error == "" })
		if works < 0 {
			s.Errorf("machine %s: no %s has worked", uid, op)
			continue
		}
		s.spaced("machine "+uid, calls[:works+1], pace)
		changed := slices.DeleteFunc(slices.Clone(calls), func(c cloudapi.Call) bool { return !c.Changed })
		if len(changed) != 1 {
			s.Errorf("machine %s: %d calls have changed something, want one: %+v", uid, len(changed), calls)
		}
	}
}

// reportedOnce checks that each machine of the namespace has an Event for each of the failures, and only one, and that each Event
// matches its row in v1alpha1.EventReasons.
func (s *space) reportedOnce(failures ...string) {
	s.Helper()
	list, err := s.lab.Control.EventsV1().Events(s.name).List(s.Context(), metav1.ListOptions{})
	s.must(err)
	reported, equal := map[string]int{}, map[string]int{}
	for _, e := range list.Items {
		row, known := v1alpha1.FindEventReason(e.Reason)
		if !known || row.Warning != (e.Type == corev1.EventTypeWarning) || !slices.Contains(row.On, e.Regarding.Kind) {
			s.Errorf("Event %s %s on %s %s: want one of v1alpha1.EventReasons, like its row: %+v", e.Type, e.Reason, e.Regarding.Kind, e.Regarding.Name, row)
		}
		if e.Regarding.Kind == "Machine" {
			n := 1
			if e.Series != nil {
				n += int(e.Series.Count)
			}
			reported[string(e.Regarding.UID)+" "+e.Reason] += n
			equal[string(e.Regarding.UID)+" "+e.Reason+" "+e.Action] += n
		}
	}
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	for uid, name := range s.seen.machines {
		for _, reason := range failures {
			if n := reported[string(uid)+" "+reason]; n != 1 {
				s.Errorf("machine %s has %d Events %s, want one", name, n, reason)
			}
		}
	}
	for what, n := range equal {
		if n > 1 {
			s.Errorf("%d equal Events: machine %s", n, what)
		}
	}
}

// notSetUp: VMs are created and not initialized, or the answer is lost. None is created again.
func (s *space) notSetUp(zone string, kind cloudapi.FaultKind) {
	s.Helper()
	end := s.fault(zone, kind, func(f *cloudapi.Fault) { f.Operations = []cloudapi.Operation{cloudapi.OpModifyInstance} })
	s.deploy("pool", 2)
	tries := 2
	if kind == cloudapi.FaultTimeoutAfter { // the next try looks the VM up first, and finds it initialized
		tries = 1
		s.counted("pool", 2)
	} else {
		s.fails("pool", 2, driver.Internal, "code = [Internal]")
	}
	failed := s.tried(cloudapi.OpModifyInstance, tries, s.ids("pool"))
	end()
	s.running("pool", 2)
	s.joined()
	if got := len(s.history()); got != 2 {
		s.Errorf("the cloud has made %d VMs, want 2", got)
	}
	if tries > 1 {
		s.recovered(cloudapi.OpModifyInstance, failed, usual(driver.Internal))
	}
	s.remove("machinedeployments", "pool")
	s.gone()
	s.reportedOnce(v1alpha1.EventCreateFailed)
}

// retryAfter: a cloud requests a longer wait than the usual one.
func (s *space) retryAfter(zone string) {
	s.Helper()
	const requested = 15 * time.Second
	end := s.fault(zone, cloudapi.FaultThrottled, func(f *cloudapi.Fault) { f.RetryAfter = cloudapi.Duration(requested) })
	s.deploy("pool", 2)
	s.fails("pool", 2, driver.Unavailable, "Throttled")
	failed := s.tried(cloudapi.OpCreateInstance, 2, s.ids("pool"))
	end()
	s.running("pool", 2)
	s.joined()
	s.recovered(cloudapi.OpCreateInstance, failed, func(int) time.Duration { return requested })
	s.remove("machinedeployments", "pool")
	s.gone()
}

// outage makes the whole cloud unavailable while machines run and one is being created, and kills the fleet during a wait.
func (s *space) outage() {
	s.Helper()
	s.deploy("old", 2)
	s.running("old", 2)
	before := s.joined()
	end := s.fault("", cloudapi.FaultUnavailable, func(f *cloudapi.Fault) { f.Operations = nil })
	began := time.Now()
	s.deploy("new", 1)
	s.fails("new", 1, driver.Unavailable, "ServiceUnavailable")
	s.looked(began, 2)
	s.eventually("the second wait is recorded", func(ctx context.Context) error {
		machines, err := s.machines(ctx, "new")
		if err == nil && !strings.Contains(machines[0].Annotations[v1alpha1.AnnotationBackoff], `"step":"10s"`) {
			err = fmt.Errorf("annotations %v", machines[0].Annotations)
		}
		return err
	})
	s.must(s.lab.Do(s.Context(), harness.Fleet, harness.Crash))
	s.looked(began, 3)
	s.running("old", 2)
	end()
	s.running("new", 1)
	looks := s.looked(began, 4)
	works := slices.IndexFunc(looks, func(c cloudapi.Call) bool { return c.Error == "" })
	s.spaced("looks for a VM", looks[:works+1], usual(driver.Unavailable))
	after := s.joined()
	for name, vm := range before {
		if after[name] != vm {
			s.Errorf("machine %s had VM %s and has %s", name, vm, after[name])
		}
	}
	for _, vm := range s.history() {
		if vm.State != cloudapi.StateRunning {
			s.Errorf("VM %s of machine %s is %s", vm.ID, vm.Tags[simulated.TagMachineUID], vm.State)
		}
	}
	s.remove("machinedeployments", "old")
	s.remove("machinedeployments", "new")
	s.gone()
}

// looked waits until the fleet has listed VMs so many times since then for a machine, and returns these calls. They do not name their
// machine. The leader lists VMs, too, to find orphans.
func (s *space) looked(since time.Time, times int) (looks []cloudapi.Call) {
	s.Helper()
	s.eventually(fmt.Sprintf("the fleet has listed VMs %d times", times), func(context.Context) error {
		all, err := s.lab.Cloud.Calls()
		if err != nil {
			return err
		}
		looks = slices.DeleteFunc(all, func(c cloudapi.Call) bool {
			return c.Operation != cloudapi.OpListInstances || c.Start.Before(since) || !strings.HasPrefix(c.Caller, "machine-controller-fleet/") || strings.HasSuffix(c.Caller, "; leader)")
		})
		if len(looks) < times {
			return fmt.Errorf("it has %d times", len(looks))
		}
		return nil
	})
	return looks
}
