package machine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// cutTarget has the target cluster not answer until it is mended.
func (b *bench) cutTarget() (mend func()) {
	return refuses(b.target, "*", errors.New("no route to host"))
}

// neverJoins creates a machine whose VM never boots, so that its token stays.
func (b *bench) neverJoins() {
	b.Helper()
	b.cloud.Created = func(*fakecloud.Resource) {}
	b.create()
	b.becomes(v1alpha1.MachinePending, time.Minute)
}

// cannotBeCreated creates a machine that has a token and no VM.
func (b *bench) cannotBeCreated() {
	b.Helper()
	b.cloud.Fail(fakecloud.Fault{Code: driver.Internal}, driver.OpCreate)
	b.create(withoutDeadline)
	b.becomes(v1alpha1.MachineCrashLoopBackOff, time.Minute)
	b.cloud.Work()
}

func (b *bench) patchMachine(patch string) {
	b.Helper()
	b.server.Merge("machines", "n", "m", patch)
}

// A drain that has ended by force ends once: there is no further request to the target cluster, and
// no further Event, however often the cloud fails to delete the VM.
func TestUnansweredDrainEndsOnce(t *testing.T) {
	for name, handOvers := range map[string]bool{"by one process": false, "by process after process": true} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.runs()
				b.cloud.Fail(fakecloud.Fault{Code: driver.Unavailable}, driver.OpDelete)
				b.cutTarget()
				b.delete()
				b.pass(b.limits.Drain.Timeout + time.Minute)
				asked := len(b.target.Requests())
				if handOvers {
					b.touches()
				} else {
					b.tries(driver.OpDelete)
				}
				want := []string{
					"Normal " + v1alpha1.EventCreated, "Normal " + v1alpha1.EventJoined, "Warning " + v1alpha1.EventDrainBlocked,
					"Warning " + v1alpha1.EventDrainForced, "Warning " + v1alpha1.EventDeleteFailed,
				}
				if reported := b.reported.List(); !slices.Equal(reported, want) {
					t.Errorf("Events %q, want %q", reported, want)
				}
				if again := len(b.target.Requests()) - asked; again > 0 && !handOvers {
					t.Errorf("the target cluster got %d more requests", again)
				}
				if last := b.get().Status.LastOperation; last.Type != v1alpha1.MachineOperationDelete || last.ErrorCode != driver.Unavailable.String() {
					t.Errorf("in the end it reports %+v", last)
				}
			})
		})
	}
}

// A request that was not sent, because many are in flight, shows nothing about the target cluster.
func TestDrainWhoseRequestsAreNotSentIsNotGivenUp(t *testing.T) {
	onBench(t, func(b *bench) {
		b.runs()
		mend := refuses(b.target, "*", &target.UnavailableError{Reason: "requests are not sent", After: time.Second})
		b.delete()
		b.pass(b.limits.Drain.Timeout + time.Minute)
		if reported := b.reported.List(); slices.Contains(reported, "Warning "+v1alpha1.EventDrainForced) || b.get() == nil {
			t.Errorf("Events %q, want that the drain waits", reported)
		}
		mend()
		b.pass(time.Minute)
		if b.get() != nil {
			t.Errorf("in the end: machine %v", b.get())
		}
	})
}

// The token of a machine that is being deleted is not needed. Its user, and its VM, do not wait for
// the cluster that has it.
func TestTokenThatCannotBeDeletedDelaysNothing(t *testing.T) {
	const force = `{"metadata":{"labels":{"` + v1alpha1.LabelForceDeletion + `":"true"}}}`
	for name, tc := range map[string]struct {
		begin func(b *bench)
		// after the deletion
		first func(b *bench)
		vms   int // that are left then
		gone  bool
	}{
		"its Node may have pods":  {begin: (*bench).neverJoins, first: func(b *bench) { b.pass(time.Hour) }, vms: 1},
		"its drain has timed out": {begin: (*bench).neverJoins, first: func(b *bench) { b.pass(3 * time.Hour) }},
		"it is deleted by force":  {begin: (*bench).neverJoins, first: func(b *bench) { b.patchMachine(force) }},
		"it has no VM":            {begin: (*bench).cannotBeCreated, first: func(*bench) {}},
		"it has none, and is to be deleted": {
			begin: (*bench).cannotBeCreated, first: func(b *bench) { b.patchMachine(force); b.pass(time.Second) }, gone: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				tc.begin(b)
				mend := b.cutTarget()
				b.delete()
				b.pass(2 * reportAfter)
				if m := b.get(); m.Status.CurrentStatus.Phase != v1alpha1.MachineTerminating ||
					m.Status.LastOperation.State != v1alpha1.MachineStateFailed ||
					!strings.Contains(m.Status.LastOperation.Description, "no route to host") {
					t.Errorf("after some seconds it reports nothing: %+v", m.Status)
				}
				tc.first(b)
				if !tc.gone { // only the process that saw the machine go knows of its token; after that process, the token expires
					b.takeOver(time.Second)
				}
				b.pass(2 * time.Minute)
				if now, _ := b.cloud.VMs(); now != tc.vms || (b.get() == nil) != tc.gone {
					t.Errorf("%d VMs, want %d; the machine is %v", now, tc.vms, b.get())
				}
				mend()
				b.pass(2 * time.Minute)
				if now, _ := b.cloud.VMs(); b.get() != nil || now != 0 || len(b.left()) != 0 {
					t.Errorf("in the end: %d VMs, left %v, machine %v", now, b.left(), b.get())
				}
			})
		})
	}
}
