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
	"github.com/machine-controller-fleet/machine-controller-fleet/telemetry"
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
	ctx = telemetry.WithOwner(ctx, telemetry.Owner{Replica: "fleet-0"})
	return klog.NewContext(ctx, g.logger), func() {}, true
}

// lines returns the lines of the log whose message is that of Events, and all others but receipts of deletions.
func (g *loggedGate) lines(t *testing.T) (ofEvents, others []string) {
	t.Helper()
	underlier, ok := g.logger.GetSink().(ktesting.Underlier)
	if !ok {
		t.Fatal("the logger keeps no lines")
	}
	for _, line := range underlier.GetBuffer().Data() {
		var keys []string
		for i := 0; i+1 < len(line.ParameterKVList); i += 2 {
			keys = append(keys, fmt.Sprint(line.ParameterKVList[i], "=", line.ParameterKVList[i+1]))
		}
		text := fmt.Sprint(line.Type, " ", line.Message, ": ", strings.Join(keys, " "))
		switch line.Message {
		case "Emitted Event":
			ofEvents = append(ofEvents, text)
		case "Started deletion": // a receipt; see TestReceipts
		default:
			others = append(others, text)
		}
	}
	return ofEvents, others
}

// TestEachStepOfALifeIsOneLineAndOneEvent follows machines at the log level of the chart.
func TestEachStepOfALifeIsOneLineAndOneEvent(t *testing.T) {
	for _, test := range []struct {
		name  string
		live  func(b *bench)
		lines []string // without what is the same in all
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
				"node=m reason=Created message=VM test:///i-1 exists and is set up; waiting for Node \"m\" to join",
				"node=m reason=Joined message=Node \"m\" has joined and is healthy",
				"node=m reason=Drained message=Node m is drained; its VM is deleted now",
				"node=m reason=Deleted message=The machine and its VM test:///i-1 are deleted; reason: MachineDeleted: at 2000-01-01T00:00:03Z, by a client; the fleet has recorded no decision",
			},
		},
		{
			name: "the machine does not join in time",
			live: func(b *bench) {
				b.cloud.made = func(*testVM) {} // it never boots
				b.create()
				b.becomes(v1alpha1.MachineFailed, time.Hour)
				b.delete()
				b.pass(time.Hour)
			},
			lines: []string{
				"node=m reason=Created message=VM test:///i-1 exists and is set up; waiting for Node \"m\" to join",
				"node=m reason=JoinTimedOut message=the VM exists and did not become a healthy Node within the creation timeout of 20m0s",
				"node=m reason=Deleted message=The machine and its VM test:///i-1 are deleted; reason: MachineDeleted: at 2000-01-01T00:20:00Z, by a client; the fleet has recorded no decision",
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
				"node=m reason=Created message=VM test:///i-1 exists and is set up; waiting for Node \"m\" to join",
				"node=m reason=Joined message=Node \"m\" has joined and is healthy",
				"node=m reason=NodeUnhealthy message=Node \"m\" is not healthy: Ready is Unknown",
				"node=m reason=HealthTimedOut message=Node \"m\" is not healthy: Ready is Unknown, for longer than the health timeout; the machine has failed",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				gate := newLoggedGate(t)
				b.end()
				b.gate = gate
				b.start()
				test.live(b)
				lines, others := gate.lines(t)
				var want []string
				for _, line := range test.lines {
					node, rest, _ := strings.Cut(line, " ")
					want = append(want, "INFO Emitted Event: machine=m namespace=n "+node+" "+rest+" replica=fleet-0")
				}
				if diff := cmp.Diff(want, lines); diff != "" {
					t.Errorf("lines of Events (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]string(nil), others); diff != "" {
					t.Errorf("other lines (-want +got):\n%s", diff)
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
		_, reason, _ := strings.Cut(line, "reason=")
		reason, _, _ = strings.Cut(reason, " ")
		logged = append(logged, reason)
	}
	for _, event := range withoutReceipts(b.reported.List()) {
		_, reason, _ := strings.Cut(event, " ")
		emitted = append(emitted, reason)
	}
	if !slices.Equal(logged, emitted) {
		b.Errorf("lines of %v, and Events %v", logged, emitted)
	}
}

// TestAllEventsOfAVerdictAreEmitted: a machine fails and is preserved from then on, and both are reported.
func TestAllEventsOfAVerdictAreEmitted(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.fails(testFault{code: driver.Internal}, driver.OpCreate)
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
