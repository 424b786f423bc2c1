package telemetry

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
)

type counter map[string]int

func (c counter) Eventf(about, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	uid, namespace := identify(about)
	c[fmt.Sprint(uid, " ", reason)]++
	c[namespace]++
}

type notes []string

func (n *notes) Eventf(_, _ runtime.Object, _, _, _, note string, args ...any) {
	*n = append(*n, fmt.Sprintf(note, args...))
}

// An API server rejects an Event whose note is too long.
func TestNotesAreBounded(t *testing.T) {
	var emitted notes
	for _, text := range []string{"short", strings.Repeat("x", 1<<20)} {
		Emit(t.Context(), &emitted, &v1alpha1.Machine{}, v1alpha1.EventCreateFailed, text)
	}
	if emitted[0] != "short" || len(emitted[1]) != 1024 {
		t.Errorf("notes of %d and %d bytes", len(emitted[0]), len(emitted[1]))
	}
}

// A Node flips ten times a second for a minute, and other Events are recorded as usual.
func TestEventsOfOneReasonOnOneObjectAreDamped(t *testing.T) {
	now, emitted := clocktesting.NewFakePassiveClock(time.Unix(0, 0)), counter{}
	recorder := Damped(emitted, now)
	flaps := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{UID: "flaps"}}
	for range 600 {
		Emit(t.Context(), recorder, flaps, v1alpha1.EventNodeUnhealthy, "it is not")
		now.SetTime(now.Now().Add(100 * time.Millisecond))
	}
	Emit(t.Context(), recorder, flaps, v1alpha1.EventNodeHealthy, "it is")
	for i := range 100 {
		Emit(t.Context(), recorder, &corev1.ObjectReference{UID: types.UID(fmt.Sprint(i))}, v1alpha1.EventNodeUnhealthy, "it is not")
	}
	most := pacing.EventBurst + int(time.Minute/pacing.EventInterval)
	if got := emitted["flaps NodeUnhealthy"]; got < pacing.EventBurst || got > most {
		t.Errorf("%d Events of an object that flaps, want %d to %d", got, pacing.EventBurst, most)
	}
	if emitted["flaps NodeHealthy"] != 1 || len(emitted) != 103 {
		t.Errorf("Events of another reason, or on other objects, are dropped: %v", emitted)
	}
}

// A rollout has an Event of each step, of which the first are recorded, and all of its warnings.
func TestEventsOfStepsAreDampedMore(t *testing.T) {
	emitted := counter{}
	recorder := Damped(emitted, clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	about := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{UID: "d"}}
	reasons := append(v1alpha1.StepEventReasons(), v1alpha1.EventRolloutStalled)
	for _, reason := range reasons {
		for range pacing.EventBurst {
			Emit(t.Context(), recorder, about, reason, "it is so")
		}
		row, _ := v1alpha1.FindEventReason(reason)
		want := map[bool]int{false: pacing.StepEventBurst, true: pacing.EventBurst}[row.Warning]
		if got := emitted["d "+reason]; got != want {
			t.Errorf("%d Events of %d with the reason %s, want %d", got, pacing.EventBurst, reason, want)
		}
	}
}

// A line has the severity of its Event and the place that has emitted it; an Event that is dropped
// has none.
func TestLinesOfEvents(t *testing.T) {
	var log strings.Builder
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	recorder := Damped(counter{}, clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	about := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	Emit(ctx, recorder, about, v1alpha1.EventJoined, "it is")
	const blocked = 100
	for range blocked {
		Emit(ctx, recorder, about, v1alpha1.EventDrainBlocked, "it is not")
	}
	severities := map[string]int{}
	for line := range strings.Lines(log.String()) {
		severities[line[:1]]++
		if !strings.Contains(line, "damped_test.go:") || strings.Contains(line, "err=") {
			t.Errorf("line %s, want one from this file, without an error", line)
		}
	}
	if want := map[string]int{"I": 1, "E": pacing.EventBurst}; !maps.Equal(severities, want) {
		t.Errorf("lines by severity %v, want %v", severities, want)
	}
}

// Machines that are created and deleted without end have an Event each, and those of other
// namespaces are recorded as usual.
func TestEventsInOneNamespaceAreDamped(t *testing.T) {
	now, emitted := clocktesting.NewFakePassiveClock(time.Unix(0, 0)), counter{}
	recorder := Damped(emitted, now)
	machine := func(i int, namespace string) *v1alpha1.Machine {
		return &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(namespace, i)), Namespace: namespace}}
	}
	for i := range 80 * 60 {
		Emit(t.Context(), recorder, machine(i, "loud"), v1alpha1.EventCreateFailed, "no")
		if i%80 == 0 {
			Emit(t.Context(), recorder, machine(i, "other"), v1alpha1.EventCreateFailed, "no")
		}
		now.SetTime(now.Now().Add(time.Second / 80))
	}
	most := pacing.NamespaceEventBurst + int(time.Minute/pacing.NamespaceEventInterval)
	if got := emitted["loud"]; got < pacing.NamespaceEventBurst || got > most || emitted["other"] != 60 {
		t.Errorf("%d Events in one namespace, want %d to %d; %d in the other, want 60", got, pacing.NamespaceEventBurst, most, emitted["other"])
	}
}
