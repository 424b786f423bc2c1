package machine

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// unknownFields returns what the class records about the fields that its driver ignores, and how
// many Events there are about it.
func (b *bench) unknownFields() (note string, events int) {
	row, _ := v1alpha1.FindEventReason(v1alpha1.EventUnknownFields)
	return apiserver.Read[v1alpha1.MachineClass](b.server, "machineclasses", "n", "c").Annotations[v1alpha1.AnnotationUnknownFields],
		b.reported.Count(row)
}

// expectUnknownFields checks both, and how many VMs were ever created.
func (b *bench) expectUnknownFields(when, note string, events, vms int) {
	b.Helper()
	gotNote, gotEvents := b.unknownFields()
	if _, ever := b.cloud.VMs(); gotNote != note || gotEvents != events || ever != vms {
		b.Errorf("%s: the class records %q, with %d Events, and %d VMs were created; want %q, %d and %d",
			when, gotNote, gotEvents, ever, note, events, vms)
	}
}

// A pool that was requested encrypted, or spot, would be neither, without a notice.
func TestFieldThatConcernsSecurityBlocksTheVMUntilItIsAllowed(t *testing.T) {
	onBench(t, func(b *bench) {
		b.patchClass(`{"providerSpec":{"size":"small","color":"red","encryptionAtHost":true}}`)
		b.create(withoutDeadline)
		b.pass(time.Hour)
		b.expectUnknownFields("before it is allowed", "color,encryptionAtHost", 1, 0)
		last := b.get().Status.LastOperation
		if last.ErrorCode != driver.InvalidArgument.String() || !strings.Contains(last.Description, "allow-unknown-fields=encryptionAtHost of") {
			t.Errorf("the last operation is %+v", last)
		}
		b.takeOver(time.Minute)
		b.pass(time.Hour)
		b.expectUnknownFields("after another process has taken over", "color,encryptionAtHost", 1, 0)
		b.patchClass(`{"metadata":{"annotations":{"` + v1alpha1.AnnotationAllowUnknownFields + `":"encryptionAtHost"}}}`)
		b.pass(time.Second) // not a back-off of minutes
		b.expectUnknownFields("after it was allowed", "color,encryptionAtHost", 1, 1)
		b.becomes(v1alpha1.MachineRunning, 10*time.Minute)
	})
}

func TestFieldThatIsIgnoredIsReportedBeforeTheFirstVM(t *testing.T) {
	onBench(t, func(b *bench) {
		b.patchClass(`{"providerSpec":{"color":"red"}}`)
		created := b.cloud.Created
		b.cloud.Created = func(vm *fakecloud.Resource) {
			if note, events := b.unknownFields(); note != "color" || events != 1 {
				t.Errorf("a VM is created while the class records %q, with %d Events", note, events)
			}
			created(vm)
		}
		b.create(withoutDeadline)
		b.becomes(v1alpha1.MachineRunning, 10*time.Minute)
		b.delete()
		b.pass(10 * time.Minute)
		b.patchClass(`{"providerSpec":{"color":null,"size":"small"}}`)
		b.cloud.Created = created
		b.create(withoutDeadline)
		b.becomes(v1alpha1.MachineRunning, 10*time.Minute)
		b.expectUnknownFields("after the class was corrected", "", 1, 2)
	})
}

// mute is a driver that does not report which fields it ignores.
type mute struct {
	driver.Driver

	err error
}

func (m *mute) GetUnknownFields(ctx context.Context, _ driver.GetUnknownFieldsRequest) (driver.GetUnknownFieldsResponse, error) {
	if driver.CodeOf(m.err) == driver.DeadlineExceeded {
		<-ctx.Done() // no worker waits for long
	}
	return driver.GetUnknownFieldsResponse{}, m.err
}

func TestDriverThatDoesNotReportWhatItIgnores(t *testing.T) {
	for name, tc := range map[string]struct {
		code   driver.Code
		note   string
		events int
		vms    int
	}{
		"it cannot":                  {driver.Unimplemented, v1alpha1.UnknownFieldsUnreported, 1, 1},
		"its process is away":        {driver.Unavailable, "", 0, 0},
		"it does not answer":         {driver.DeadlineExceeded, "", 0, 0},
		"there are too many of them": {driver.InvalidArgument, "", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				cloud := &mute{b.cloud.Driver(), driver.Errorf(driver.OpFields, tc.code, "the cause")}
				b.rewire = func(w *wires) { w.cloud = cloud }
				b.takeOver(0)
				b.create(withoutDeadline)
				b.pass(10 * time.Minute)
				b.expectUnknownFields("at first", tc.note, tc.events, tc.vms)
				if last := b.get().Status.LastOperation; tc.vms == 0 &&
					(last.ErrorCode != tc.code.String() || !strings.Contains(last.Description, "the cause")) {
					t.Errorf("the last operation is %+v", last)
				}
				cloud.err = nil
				b.becomes(v1alpha1.MachineRunning, 10*time.Minute)
				b.expectUnknownFields("later", tc.note, tc.events, 1)
			})
		})
	}
}
