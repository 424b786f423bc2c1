package machine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// manyTimes is how often an action is repeated that must be reported once.
const manyTimes = 100

// plays lead to each Event of a Machine, and then repeat what led to it, manyTimes.
var plays = map[string]func(b *bench){
	v1alpha1.EventCreated: func(b *bench) {
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.touches()
	},
	v1alpha1.EventDeleted: func(b *bench) {
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.delete()
		b.pass(time.Hour)
		if b.get() != nil {
			b.Errorf("the machine is %v", b.get())
		}
	},
	v1alpha1.EventDeleting: func(b *bench) { // of the VM: the machine has no Node yet
		b.create()
		b.becomes(v1alpha1.MachinePending, time.Minute)
		b.delete()
		b.pass(time.Hour)
	},
	v1alpha1.EventCreateFailed: func(b *bench) {
		b.cloud.Fail(fakecloud.Fault{Code: driver.Internal}, driver.OpCreate)
		b.create(withoutDeadline)
		b.tries(driver.OpCreate)
	},
	v1alpha1.EventCreateTimedOut: func(b *bench) {
		b.cloud.Fail(fakecloud.Fault{Code: driver.Internal}, driver.OpCreate)
		b.create()
		b.becomes(v1alpha1.MachineFailed, time.Hour)
		b.touches()
	},
	v1alpha1.EventSetAside: func(b *bench) {
		b.cloud.FailIf(func(driver.Op) *fakecloud.Fault { panic("a defect") })
		b.create(withoutDeadline)
		b.pass(100 * time.Hour)
	},
	v1alpha1.EventDeleteFailed: func(b *bench) {
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.cloud.Fail(fakecloud.Fault{Code: driver.Unavailable}, driver.OpDelete)
		b.delete()
		b.tries(driver.OpDelete)
	},
	v1alpha1.EventDrainBlocked: func(b *bench) {
		b.addBlockingBudget()
		b.drainBegins(10000*time.Hour, func() { b.pod("web", labelled("held")) })
		b.reportsSoon("held by PodDisruptionBudget a/never")
		b.touches()
	},
	v1alpha1.EventDrained: func(b *bench) {
		b.cloud.Fail(fakecloud.Fault{Code: driver.Unavailable}, driver.OpDelete)
		b.drainBegins(time.Hour, func() { b.pod("web") })
		b.tries(driver.OpDelete)
		b.touches()
	},
	v1alpha1.EventDrainForced: func(b *bench) {
		b.cloud.Fail(fakecloud.Fault{Code: driver.Unavailable}, driver.OpDelete)
		b.drainBegins(time.Hour, func() { b.pod("web", endless) })
		b.pass(2 * time.Hour)
		b.tries(driver.OpDelete)
		b.touches()
	},
	v1alpha1.EventEvictionTimedOut: func(b *bench) {
		b.cloud.Fail(fakecloud.Fault{Code: driver.Unavailable}, driver.OpDelete)
		b.addBlockingBudget()
		b.create(drainTimeout(time.Hour), func(m *v1alpha1.Machine) { m.Spec.MaxEvictRetries = new(int32(2)) })
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.pod("web", labelled("held"))
		b.delete()
		b.reportsSoon("; a/web is deleted without grace at ")
		b.tries(driver.OpDelete)
		b.touches()
	},
	v1alpha1.EventJoined: func(b *bench) {
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.touches()
	},
	v1alpha1.EventJoinTimedOut: func(b *bench) {
		b.cloud.Created = func(*fakecloud.Resource) {} // it never boots
		b.create()
		b.becomes(v1alpha1.MachineFailed, time.Hour)
		b.touches()
	},
	v1alpha1.EventNodeUnhealthy: func(b *bench) {
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.setReady(corev1.ConditionFalse)
		b.becomes(v1alpha1.MachineUnknown, time.Second)
		b.touches()
	},
	v1alpha1.EventNodeHealthy: func(b *bench) {
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.setReady(corev1.ConditionUnknown)
		b.becomes(v1alpha1.MachineUnknown, time.Second)
		b.setReady(corev1.ConditionTrue)
		b.becomes(v1alpha1.MachineRunning, time.Second)
		b.touches()
	},
	v1alpha1.EventHealthTimedOut: func(b *bench) {
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.setReady(corev1.ConditionUnknown)
		b.becomes(v1alpha1.MachineUnknown, time.Second)
		b.pass(9 * time.Minute)
		b.becomes(v1alpha1.MachineUnknown, time.Second)
		b.becomes(v1alpha1.MachineFailed, time.Minute)
		b.touches()
	},
	v1alpha1.EventInPlaceUpdating: func(b *bench) {
		b.isUpdated()
		b.touches()
	},
	v1alpha1.EventInPlaceUpdated: func(b *bench) {
		b.isUpdated()
		b.labelNode(v1alpha1.LabelUpdateResult, v1alpha1.UpdateResultSuccessful)
		b.becomes(v1alpha1.MachineRunning, time.Second)
		b.touches()
	},
	v1alpha1.EventInPlaceFailed: func(b *bench) {
		b.isUpdated()
		b.labelNode(v1alpha1.LabelUpdateResult, v1alpha1.UpdateResultFailed)
		b.becomes(v1alpha1.MachineInPlaceUpdateFailed, time.Second)
		b.touches()
	},
	v1alpha1.EventNodeDeleted: func(b *bench) {
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		refused := 0
		b.server.Fault(func(r apiserver.Request) error {
			if r.Verb == "delete" && refused < manyTimes {
				refused++
				return errors.New("not now")
			}
			return nil
		})
		node := b.node()
		node.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		b.setNode(node)
		b.pass(manyTimes * 2 * time.Minute)
		if refused < manyTimes || b.get() != nil {
			b.Errorf("the deletion was refused %d times, and the machine is %v", refused, b.get())
		}
	},
	v1alpha1.EventDeletionTriggered: func(b *bench) {
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.annotateNode(v1alpha1.AnnotationTriggerDeletion, "true")
		b.pass(time.Minute)
		if b.get() != nil {
			b.Errorf("the machine is %v", b.get())
		}
	},
	v1alpha1.EventNodeRefused: func(b *bench) {
		b.target.Fault(func(r apiserver.Request) error {
			if r.What() == "patch nodes" && strings.Contains(string(r.Content), "not a label") {
				return apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "m", nil)
			}
			return nil
		})
		b.create(func(m *v1alpha1.Machine) { m.Spec.NodeTemplateSpec.Labels = map[string]string{"not a label": ""} })
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.touches()
	},
	v1alpha1.EventNotOwned: func(b *bench) {
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.annotateNode(v1alpha1.AnnotationMachine, "another/machine/uid")
		b.cloud.Fail(fakecloud.Fault{Code: driver.Unavailable}, driver.OpDelete)
		b.delete()
		b.tries(driver.OpDelete)
	},
	v1alpha1.EventPreserved: func(b *bench) {
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.annotateNode(v1alpha1.AnnotationPreserve, v1alpha1.PreserveNow)
		b.touches()
	},
	v1alpha1.EventPreservationEnded: func(b *bench) {
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.annotateNode(v1alpha1.AnnotationPreserve, v1alpha1.PreserveNow)
		b.pass(b.limits.PreserveTimeout + time.Minute)
		b.touches()
	},
	v1alpha1.EventPreserveUnknown: func(b *bench) {
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.annotateNode(v1alpha1.AnnotationPreserve, "always")
		b.touches()
	},
}

// reportedByOthers are Events of Machines that another package emits: internal/replica.
var reportedByOthers = []string{
	v1alpha1.EventNotAlone, v1alpha1.EventNotSelected, v1alpha1.EventNotLabeled, v1alpha1.EventSlotUnowned, v1alpha1.EventUndecodable,
}

// tries waits until the cloud has got manyTimes requests.
func (b *bench) tries(op driver.Op) {
	b.Helper()
	b.pass(manyTimes * 3 * time.Minute)
	if tried := len(b.cloud.Calls(op)); tried < manyTimes {
		b.Errorf("tried %d times, want %d", tried, manyTimes)
	}
}

// touches enqueues the machine manyTimes, in process after process.
func (b *bench) touches() {
	b.Helper()
	for i := range manyTimes {
		if i%10 == 9 {
			b.takeOver(time.Second)
		}
		b.server.Merge("machines", "n", "m", fmt.Sprintf(`{"metadata":{"annotations":{"touched":"%d"}}}`, i))
		b.pass(time.Minute)
	}
}

// TestEachEventIsEmittedOnce plays what leads to each Event of a Machine, and a hundred times more
// than once.
func TestEachEventIsEmittedOnce(t *testing.T) {
	for _, row := range v1alpha1.EventReasons() {
		if !slices.Contains(row.On, "Machine") || slices.Contains(reportedByOthers, row.Reason) {
			continue
		}
		t.Run(row.Reason, func(t *testing.T) {
			play, known := plays[row.Reason]
			if !known {
				t.Fatal("a reason without a play: add what leads to it to plays")
			}
			onBench(t, func(b *bench) {
				play(b)
				if n := b.reported.Count(row); n != 1 {
					t.Errorf("emitted %d times, want once; all Events: %v", n, b.reported.List())
				}
			})
		})
	}
}

// TestHundredFailuresOfThreeKindsAreReportedThreeTimes has the cloud fail in one way after the
// other.
func TestHundredFailuresOfThreeKindsAreReportedThreeTimes(t *testing.T) {
	onBench(t, func(b *bench) {
		codes := []driver.Code{driver.Internal, driver.Unavailable, driver.DeadlineExceeded}
		next := 0
		b.cloud.FailIf(func(driver.Op) *fakecloud.Fault {
			next++
			return &fakecloud.Fault{Code: codes[next%len(codes)]}
		})
		b.create(withoutDeadline)
		b.tries(driver.OpStatus)
		if want := slices.Repeat([]string{"Warning " + v1alpha1.EventCreateFailed}, len(codes)); !slices.Equal(b.reported.List(), want) {
			t.Errorf("Events %v, want %v", b.reported.List(), want)
		}
	})
}
