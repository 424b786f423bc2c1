package machineset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
)

// receipts are the deletion log and the Events about deletions of a test.
type receipts struct {
	apitest.Receipts

	mu     sync.Mutex
	events []string
}

// Eventf is events.EventRecorder's.
func (r *receipts) Eventf(about, _ runtime.Object, _, reason, _, note string, args ...any) {
	if reason != v1alpha1.EventDeleting && reason != v1alpha1.EventSuccessfulDelete {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, fmt.Sprintf("%T %s: %s", about, reason, fmt.Sprintf(note, args...)))
}

func (r *receipts) use(cfg *Config) {
	cfg.Events, cfg.Deletions = r, deletion.NewRecorder(clock.RealClock{}, deletion.NewFile(&r.Receipts), nil)
}

// lines returns the receipts in the deletion log.
func (r *receipts) lines(t *testing.T) []receipt.Receipt {
	t.Helper()
	all, err := r.List()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestScaleDownLeavesAReceiptOfEachMachineAndOneEventOfTheRoot deletes several machines of a
// MachineDeployment's set at once.
func TestScaleDownLeavesAReceiptOfEachMachineAndOneEventOfTheRoot(t *testing.T) {
	var r receipts
	onBench(t, func(b *bench) {
		d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d"}}
		d = apiserver.Add(b.server, d)
		b.create(8, func(set *v1alpha1.MachineSet) {
			set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, v1alpha1.SchemeGroupVersion.WithKind("MachineDeployment"))}
		})
		b.patch(`{"spec":{"replicas":1}}`)
		b.pass(time.Minute)
		lines := r.lines(b.T)
		for _, line := range lines {
			want := receipt.Reason{Rule: receipt.ScaledDown, Evidence: "8 machines for 1 replicas, first in the order of deletion by: name"}
			if line.Kind != receipt.Machine || line.Namespace != "n" || line.UID == "" || line.Outcome != receipt.Accepted || line.Reason != want {
				b.Errorf("receipt %+v", line)
			}
		}
		if len(lines) != 7 {
			b.Errorf("%d receipts, want one for each of 7 machines", len(lines))
		}
		slices.Sort(r.events)
		r.events = slices.DeleteFunc(r.events, func(event string) bool {
			return strings.HasPrefix(event, "*v1alpha1.Machine Deleting: Started to delete Machine ")
		})
		if len(r.events) != 2 {
			b.Fatalf("Events in addition to those on machines: %q, want one on the set and one on the deployment", r.events)
		}
		for i, about := range []string{"*v1alpha1.MachineDeployment", "*v1alpha1.MachineSet"} {
			if !strings.HasPrefix(r.events[i], about+" SuccessfulDelete: Deleted 7 machines, by ") ||
				!strings.Contains(r.events[i], "ScaledDown: 8 machines for 1 replicas") ||
				!strings.HasSuffix(r.events[i], "; 2 more") {
				b.Errorf("Event %q", r.events[i])
			}
		}
	}, r.use)
}

func TestReceiptsOfADeletedSetNameTheSet(t *testing.T) {
	var r receipts
	onBench(t, func(b *bench) {
		b.create(1)
		b.server.Delete("machinesets", "n", "set")
		b.pass(time.Minute)
		if lines := r.lines(b.T); len(lines) != 1 || lines[0].Rule != receipt.ParentDeleted {
			b.Errorf("receipts %+v", lines)
		}
	}, r.use)
}

func TestReceiptsOfAnOldSetNameTheNewSet(t *testing.T) {
	var r receipts
	onBench(t, func(b *bench) {
		d := apiserver.Add(b.server, &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d"}})
		b.create(1, func(set *v1alpha1.MachineSet) {
			set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, v1alpha1.SchemeGroupVersion.WithKind("MachineDeployment"))}
		})
		b.patch(`{"metadata":{"annotations":{%q:"new"}},"spec":{"replicas":0}}`, v1alpha1.AnnotationReplacedBy)
		b.pass(time.Minute)
		want := receipt.Reason{Rule: receipt.RolledOut, Evidence: "rollout to MachineSet new, 1 machines for 0 replicas"}
		if lines := r.lines(b.T); len(lines) != 1 || lines[0].Reason != want {
			b.Errorf("receipts %+v, want %v", lines, want)
		}
	}, r.use)
}

func TestRejectedDeletionLeavesNoReceipt(t *testing.T) {
	var r receipts
	onBench(t, func(b *bench) {
		b.create(2)
		b.server.Fault(func(request apiserver.Request) error {
			if request.Verb == "delete" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, request.Name, errors.New("a policy"))
			}
			return nil
		})
		b.patch(`{"spec":{"replicas":1}}`)
		b.pass(time.Hour)
		if lines := r.lines(b.T); len(lines) > 0 {
			b.Errorf("receipts %+v of deletions that were rejected", lines)
		}
	}, r.use)
}
