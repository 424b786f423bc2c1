package lifecycle

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// Regardless of which numbers and times a client has written on a machine, there is a verdict, and
// the verdict does not request another pass at once.
func TestAbsurdNumbers(t *testing.T) {
	duration := func(t *rapid.T, name string) *metav1.Duration {
		if rapid.Bool().Draw(t, "no "+name) {
			return nil
		}
		return &metav1.Duration{
			Duration: rapid.SampledFrom([]time.Duration{math.MinInt64, -time.Hour, 0, 1, time.Minute, math.MaxInt64}).Draw(t, name),
		}
	}
	moment := func(t *rapid.T, name string) metav1.Time {
		return rapid.SampledFrom([]metav1.Time{
			{}, metav1.NewTime(born), metav1.Unix(-62135596800, 0), metav1.Unix(253402300799, 0), metav1.Unix(math.MaxInt32, 0),
		}).Draw(t, name)
	}
	phases := []v1alpha1.MachinePhase{
		"", "Other", v1alpha1.MachinePending, v1alpha1.MachineAvailable, v1alpha1.MachineRunning, v1alpha1.MachineTerminating,
		v1alpha1.MachineUnknown, v1alpha1.MachineFailed, v1alpha1.MachineCrashLoopBackOff, v1alpha1.MachineInPlaceUpdating,
		v1alpha1.MachineInPlaceUpdateSuccessful, v1alpha1.MachineInPlaceUpdateFailed,
	}
	worlds.Check(t, 20, func(t *rapid.T) {
		w := fresh(vm(rapid.SampledFrom([]VMState{VMUnknown, VMAbsent, VMPresent}).Draw(t, "VM")))
		m := w.Machine
		m.Spec.ProviderID, m.Labels = "cloud:///i-1", map[string]string{v1alpha1.LabelNode: "m"}
		m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: rapid.SampledFrom(phases).Draw(t, "phase"), LastUpdateTime: moment(t, "since")}
		m.Status.LastOperation.LastUpdateTime = moment(t, "last operation")
		retries := rapid.SampledFrom([]int32{math.MinInt32, -1, 0, 1, 500_000_000, math.MaxInt32}).Draw(t, "retries")
		m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineDrainTimeout: duration(t, "drain"), MachineHealthTimeout: duration(t, "health"), MachineCreationTimeout: duration(t, "creation"),
			MachineInPlaceUpdateTimeout: duration(t, "in place"), MachinePreserveTimeout: duration(t, "preserve"), MaxEvictRetries: &retries,
		}
		m.Annotations = map[string]string{
			v1alpha1.AnnotationPreserve: rapid.SampledFrom([]string{"", v1alpha1.PreserveNow}).Draw(t, "preserve value"),
			v1alpha1.AnnotationEffectiveCreationTimeout: rapid.SampledFrom([]string{"", "-2562047h47m16.854775808s", "2562047h"}).Draw(t,
				"effective"),
			v1alpha1.AnnotationBackoff: rapid.SampledFrom([]string{"", `{"at":"9999-12-31T23:59:59Z","step":"-2562047h"}`, `{"step":"2562047h"}`}).
				Draw(t, "backoff"),
			v1alpha1.AnnotationSetAside: rapid.SampledFrom([]string{
				"", `{"times":9223372036854775807,"until":"9999-12-31T23:59:59Z"}`, `{"times":-1,"rest":"-2562047h","until":"0001-01-01T00:00:00Z"}`,
				`{"times":1,"rest":"2562047h"}`,
			}).Draw(t, "aside"),
		}
		if rapid.Bool().Draw(t, "deleted") {
			m.DeletionTimestamp = new(moment(t, "deletion"))
		}
		w.Node.State = rapid.SampledFrom([]NodeState{NodeUnseen, NodeAbsent}).Draw(t, "Node")
		w.Disruption = rapid.SampledFrom([]DisruptionFact{DisruptionPending, DisruptionAllowed, DisruptionUnneeded}).Draw(t, "disruption")
		v := EndSetAside(w, Decide(w))
		if v.Do == "" || v.Wake < 0 {
			t.Fatalf("verdict %+v", v)
		}
		if value, _ := SetAside(m, w.Now, "a defect"); value == "" {
			t.Fatal("it cannot be set aside")
		}
		if trouble, wait := WhileSetAside(m, w.Now); trouble != nil && (wait <= 0 || wait > 2*longestSetAside) {
			t.Fatalf("it is set aside for %s", wait)
		}
		if order := drain.ForUpdate(m, w.Now, w.Limits.Drain); order.EvictTime < 0 || retries > 0 && order.EvictTime == 0 {
			t.Fatalf("pods have %s to leave with %d retries", order.EvictTime, retries)
		}
	})
}
