package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// chartLogLevel is logLevel in the chart's values.yaml.
const chartLogLevel = 2

// loggedGate admits each key, as replica "fleet-0", with a logger that keeps its lines.
type loggedGate struct{ logger klog.Logger }

func newLoggedGate(t *testing.T) *loggedGate {
	t.Helper()
	return &loggedGate{ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(chartLogLevel), ktesting.BufferLogs(true)))}
}

func (g *loggedGate) Admit(ctx context.Context, _ types.NamespacedName) (context.Context, func(), bool) {
	return telemetry.WithOwner(klog.NewContext(ctx, g.logger), telemetry.Owner{Replica: "fleet-0", Slot: 7, Epoch: 3}), func() {}, true
}

// lines returns the lines of the log but receipts of deletions, for which there is TestReceipts:
// the message, and the keys of the line without those of its pass.
func (g *loggedGate) lines(t *testing.T) (lines []string) {
	t.Helper()
	underlier, ok := g.logger.GetSink().(ktesting.Underlier)
	if !ok {
		t.Fatal("the logger keeps no lines")
	}
	for _, line := range underlier.GetBuffer().Data() {
		if line.Message == "Started deletion" {
			continue
		}
		if of := keysOf(line.WithKVList); of["slot"] != 7 || of["epoch"] != int64(3) || of["controller"] != "machine" ||
			of[telemetry.KeyMachine] != klog.KRef("n", "m") {
			t.Errorf("line %q has the keys %v of its pass", line.Message, line.WithKVList)
		}
		text := string(line.Type) + " " + line.Message
		for i := 0; i+1 < len(line.ParameterKVList); i += 2 {
			text += fmt.Sprint(" ", line.ParameterKVList[i], "=", line.ParameterKVList[i+1])
		}
		lines = append(lines, text)
	}
	return lines
}

func keysOf(keysAndValues []any) map[any]any {
	keys := map[any]any{}
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		keys[keysAndValues[i]] = keysAndValues[i+1]
	}
	return keys
}

// TestEachStepOfALifeIsOneLine follows machines at the log level of the chart. Each Event is a
// line.
func TestEachStepOfALifeIsOneLine(t *testing.T) {
	for _, test := range []struct {
		name  string
		live  func(b *bench)
		lines []string
	}{
		{
			name: "the machine runs, is drained and is deleted",
			live: func(b *bench) {
				b.create()
				b.becomes(v1alpha1.MachineRunning, time.Minute)
				b.pod("web")
				b.delete()
				b.pass(time.Hour)
			},
			lines: []string{
				"INFO Requesting VM provider=test machineClass=n/c",
				"INFO Emitted Event reason=Created message=VM test:///i-1 exists and is set up; waiting for Node \"m\" to join",
				"INFO Emitted Event reason=Joined message=Node \"m\" has joined and is healthy",
				"INFO Draining Node node=m aim=deletion",
				"INFO Emitted Event reason=Drained message=Node m is drained; its VM is deleted now",
				"INFO Deleted VM providerID=test:///i-1",
				"INFO Emitted Event reason=Deleted message=The machine and its VM test:///i-1 are deleted; reason: MachineDeleted: " +
					"at 2000-01-01T00:00:03Z, by a client; the fleet has recorded no decision",
			},
		},
		{
			name: "the machine does not join in time",
			live: func(b *bench) {
				b.cloud.Created = func(*fakecloud.Resource) {} // it never boots
				b.create()
				b.becomes(v1alpha1.MachineFailed, time.Hour)
				b.delete()
				b.pass(time.Hour)
			},
			lines: []string{
				"INFO Requesting VM provider=test machineClass=n/c",
				"INFO Emitted Event reason=Created message=VM test:///i-1 exists and is set up; waiting for Node \"m\" to join",
				"ERROR Emitted Event reason=JoinTimedOut message=the VM exists and did not become a healthy Node within the creation timeout of 20m0s",
				"INFO Deleted VM providerID=test:///i-1",
				"INFO Emitted Event reason=Deleted message=The machine and its VM test:///i-1 are deleted; reason: MachineDeleted: " +
					"at 2000-01-01T00:20:00Z, by a client; the fleet has recorded no decision",
			},
		},
		{
			name: "the machine becomes unhealthy and fails",
			live: func(b *bench) {
				b.create()
				b.becomes(v1alpha1.MachineRunning, time.Minute)
				b.setReady(corev1.ConditionUnknown)
				b.becomes(v1alpha1.MachineFailed, time.Hour)
			},
			lines: []string{
				"INFO Requesting VM provider=test machineClass=n/c",
				"INFO Emitted Event reason=Created message=VM test:///i-1 exists and is set up; waiting for Node \"m\" to join",
				"INFO Emitted Event reason=Joined message=Node \"m\" has joined and is healthy",
				"ERROR Emitted Event reason=NodeUnhealthy message=Node \"m\" is not healthy: it is unreachable, " +
					"its kubelet does not report (Ready is Unknown)",
				"ERROR Emitted Event reason=HealthTimedOut message=Node \"m\" is not healthy: it is unreachable, " +
					"its kubelet does not report (Ready is Unknown), for longer than the health timeout; the machine has failed; " +
					"the cloud had its VM at 2000-01-01T00:00:03Z",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				gate := newLoggedGate(t)
				b.end()
				b.gate, b.logsEvents = gate, true
				b.start()
				test.live(b)
				lines := gate.lines(t)
				if diff := cmp.Diff(test.lines, lines); diff != "" {
					t.Errorf("lines (-want +got):\n%s", diff)
				}
				b.eachLineHasItsEvent(lines)
			})
		})
	}
}

// eachLineHasItsEvent compares the reasons of lines with those of Events.
func (b *bench) eachLineHasItsEvent(lines []string) {
	b.Helper()
	var logged, emitted []string
	for _, line := range lines {
		if _, reason, ok := strings.Cut(line, "reason="); ok && strings.Contains(line, "Emitted Event") {
			reason, _, _ = strings.Cut(reason, " ")
			logged = append(logged, reason)
		}
	}
	for _, event := range withoutReceipts(b.reported.List()) {
		_, reason, _ := strings.Cut(event, " ")
		emitted = append(emitted, reason)
	}
	if !slices.Equal(logged, emitted) {
		b.Errorf("lines of %v, and Events %v", logged, emitted)
	}
}

// TestAllEventsOfAVerdictAreEmitted: a machine fails and is preserved from then on, and both are
// reported.
func TestAllEventsOfAVerdictAreEmitted(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Fail(fakecloud.Fault{Code: driver.Internal}, driver.OpCreate)
		b.create(func(m *v1alpha1.Machine) {
			m.Annotations = map[string]string{v1alpha1.AnnotationPreserve: v1alpha1.PreserveWhenFailed}
		})
		b.becomes(v1alpha1.MachineFailed, time.Hour)
		want := []string{"Warning " + v1alpha1.EventCreateFailed, "Warning " + v1alpha1.EventCreateTimedOut, "Normal " + v1alpha1.EventPreserved}
		if diff := cmp.Diff(want, b.reported.List()); diff != "" {
			t.Errorf("Events (-want +got):\n%s", diff)
		}
	})
}
