package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// observed is a step that processes have observed.
type observed struct {
	times uint64
	took  time.Duration // all together
}

// countOf returns how many values a histogram has of a step.
func countOf(t *testing.T, histogram prometheus.Collector, step string) (values uint64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(histogram)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[0].GetMetric() {
		if labelOf(m, "step") == step {
			values += m.GetHistogram().GetSampleCount()
		}
	}
	return values
}

// measured returns the steps that processes have observed.
func measured(t *testing.T, processes ...*Controller) map[lifecycle.Step]observed {
	t.Helper()
	seen := map[lifecycle.Step]observed{}
	for _, process := range processes {
		registry := prometheus.NewRegistry()
		registry.MustRegister(process.metrics.steps)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range families[0].GetMetric() {
			if took := m.GetHistogram(); took.GetSampleCount() > 0 {
				step := lifecycle.Step(labelOf(m, "step"))
				was := seen[step]
				seen[step] = observed{was.times + took.GetSampleCount(), was.took + time.Duration(took.GetSampleSum()*float64(time.Second))}
			}
		}
	}
	return seen
}

func labelOf(m *dto.Metric, name string) string {
	for _, pair := range m.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// expect compares what was observed, each step once, with durations that may be 2 s longer: times
// on objects are whole seconds, and the end of a VM is looked for at intervals.
func expect(t *testing.T, got map[lifecycle.Step]observed, want map[lifecycle.Step]time.Duration) {
	t.Helper()
	for _, step := range lifecycle.Steps() {
		took, wanted := want[step]
		switch is := got[step]; {
		case !wanted && is.times > 0:
			t.Errorf("%s was observed %d times, want none", step, is.times)
		case wanted && (is.times != 1 || is.took < took || is.took > took+2*time.Second):
			t.Errorf("%s was observed %d times, %s together; want once, %s", step, is.times, is.took, took)
		}
	}
}

const vmStops = 4 * time.Second

// wholeLife are the steps of a machine with a pod, whose VM takes vmStops to end.
func wholeLife() map[lifecycle.Step]time.Duration {
	return map[lifecycle.Step]time.Duration{
		lifecycle.StepCreateCall: 0, lifecycle.StepCreate: 0, lifecycle.StepJoin: bootTime, lifecycle.StepRun: bootTime,
		lifecycle.StepDrain: grace, lifecycle.StepDeleteVM: vmStops, lifecycle.StepDelete: grace + vmStops,
	}
}

func TestEachStepIsObservedOnceByOneProcess(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Stops = vmStops
		b.drainBegins(time.Hour, func() { b.pod("web") })
		b.pass(5 * time.Minute)
		if b.get() != nil {
			t.Fatalf("the machine is %v", b.get())
		}
		expect(t, measured(t, b.process), wholeLife())
		if n := testutil.CollectAndCount(b.process.metrics.byNamespace.steps); n != len(namespaceSteps()) {
			t.Errorf("%d histograms of the namespace, want one of each of %v", n, namespaceSteps())
		}
		for _, step := range namespaceSteps() {
			if n := countOf(t, b.process.metrics.byNamespace.steps, string(step)); n != 1 {
				t.Errorf("%s was observed %d times in the namespace, want once", step, n)
			}
		}
	})
}

// Regardless of which process sends the write that ends a step, its duration is counted from the
// times on the machine. The time of the deletion of the VM is known to one process only.
func TestEachStepIsObservedOnceByChangingProcesses(t *testing.T) {
	onBench(t, func(b *bench) {
		var processes []*Controller
		takeOver := func() {
			processes = append(processes, b.process)
			b.takeOver(0)
		}
		b.cloud.Stops = vmStops
		b.create(drainTimeout(time.Hour))
		b.becomes(v1alpha1.MachinePending, time.Minute)
		b.pass(time.Second)
		takeOver()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		takeOver()
		b.touches()
		b.pod("web")
		b.delete()
		b.pass(grace / 2)
		takeOver() // while the pod ends
		b.pass(grace/2 + vmStops/2)
		takeOver() // while the VM ends
		b.pass(5 * time.Minute)
		if b.get() != nil {
			t.Fatalf("the machine is %v", b.get())
		}
		want := wholeLife()
		delete(want, lifecycle.StepDeleteVM)
		expect(t, measured(t, append(processes, b.process)...), want)
	})
}

// A Node without pods is not drained, and a machine without a VM has none to delete.
func TestStepWithNothingToDoIsNotObserved(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Fail(fakecloud.Fault{Code: driver.Internal}, driver.OpCreate)
		b.create(withoutDeadline)
		b.becomes(v1alpha1.MachineCrashLoopBackOff, time.Minute)
		b.delete()
		b.pass(5 * time.Minute)
		expect(t, measured(t, b.process), map[lifecycle.Step]time.Duration{lifecycle.StepDelete: 0})
	})
	onBench(t, func(b *bench) {
		b.drainBegins(time.Hour, func() {})
		b.pass(5 * time.Minute)
		want := wholeLife()
		delete(want, lifecycle.StepDrain)
		want[lifecycle.StepDeleteVM], want[lifecycle.StepDelete] = 0, 0
		expect(t, measured(t, b.process), want)
	})
}

// The series of a namespace exist before its first deletion, whose increase would be missed
// otherwise. A rollout creates for what it deletes.
func TestNamespaceMetricsCountDeletionsOutsideRollouts(t *testing.T) {
	for rule, counted := range map[receipt.Rule]float64{receipt.ScaledDown: 1, receipt.RolledOut: 0} {
		onBench(t, func(b *bench) {
			is := b.process.metrics.byNamespace
			b.create()
			b.becomes(v1alpha1.MachineRunning, time.Minute)
			if n := testutil.CollectAndCount(is.deletions); n != 1 {
				t.Errorf("%s: %d series before the deletion, want 1", rule, n)
			}
			before, after := b.get(), b.get()
			after.Status.CurrentStatus.Phase = v1alpha1.MachineTerminating
			after.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.MachineDeleting, Reason: string(rule)}}
			b.process.metrics.written(t.Context(), &pass{world: lifecycle.World{Machine: after}}, before, timing{}, nil)
			if got := testutil.ToFloat64(is.deletions.WithLabelValues(before.Namespace)); got != counted {
				t.Errorf("%s: %v deletions, want %v", rule, got, counted)
			}
		})
	}
}

func TestFailuresCountedByCause(t *testing.T) {
	for cause, play := range map[lifecycle.Cause]func(b *bench){
		lifecycle.CauseCreate: plays[v1alpha1.EventCreateTimedOut],
		lifecycle.CauseJoin:   plays[v1alpha1.EventJoinTimedOut],
		lifecycle.CauseHealth: func(b *bench) {
			b.create()
			b.becomes(v1alpha1.MachineRunning, time.Minute)
			b.setReady(corev1.ConditionUnknown)
			b.becomes(v1alpha1.MachineFailed, time.Hour)
		},
	} {
		onBench(t, func(b *bench) {
			first := b.process
			play(b)
			for _, counted := range []lifecycle.Cause{lifecycle.CauseCreate, lifecycle.CauseJoin, lifecycle.CauseHealth} {
				got, want := 0.0, 0.0
				for _, process := range slices.Compact([]*Controller{first, b.process}) {
					got += testutil.ToFloat64(process.metrics.failures.WithLabelValues(testProvider, string(counted)))
				}
				if counted == cause {
					want = 1
				}
				if got != want {
					t.Errorf("%s: %g machines failed with cause %s, want %g", cause, got, counted, want)
				}
			}
		})
	}
}

// family is a MachineDeployment with a set and a machine in a view.
func family(view *objectcache.View, name string) (*v1alpha1.MachineDeployment, *v1alpha1.Machine) {
	kind := func(kind string) schema.GroupVersionKind { return v1alpha1.SchemeGroupVersion.WithKind(kind) }
	meta := func() metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name)} }
	d, s, m := &v1alpha1.MachineDeployment{ObjectMeta: meta()}, &v1alpha1.MachineSet{ObjectMeta: meta()}, &v1alpha1.Machine{ObjectMeta: meta()}
	ownerref.Adopt(s, d, kind("MachineDeployment"))
	ownerref.Adopt(m, s, kind("MachineSet"))
	view.Deployments.Apply(d, false)
	view.Sets.Apply(s, false)
	view.Machines.Apply(m, false)
	return d, m
}

func TestLastMachinesMetricsEndWithTheMachineDeployment(t *testing.T) {
	view := objectcache.NewView()
	last := newLastMachines(view)
	d, m := family(view, "d")
	m.Spec.NodeTemplateSpec.Labels = map[string]string{corev1.LabelTopologyZone: "z"}
	class := &v1alpha1.MachineClass{NodeTemplate: &v1alpha1.NodeTemplate{InstanceType: "large"}}
	last.note(m, class, timing{initializeCall: 1400 * time.Millisecond},
		[]lifecycle.Took{{Step: lifecycle.StepCreate, Duration: 10 * time.Second}}, "")
	last.note(m, class, timing{},
		[]lifecycle.Took{{Step: lifecycle.StepJoin, Duration: time.Second}, {Step: lifecycle.StepRun, Duration: 40 * time.Second}}, "")
	last.note(m, class, timing{}, []lifecycle.Took{{Step: lifecycle.StepDrain, Duration: 5 * time.Second}}, "")
	last.note(m, class, timing{}, []lifecycle.Took{{Step: lifecycle.StepDelete, Duration: 20 * time.Second}}, "")
	for range 2 {
		last.note(m, nil, timing{}, nil, lifecycle.CauseJoin)
	}
	last.note(&v1alpha1.Machine{}, class, timing{}, nil, lifecycle.CauseJoin) // of no MachineDeployment
	gauges := telemetry.NewGauges(func() bool { return true }, view.Deployments.All, last.metrics()...)
	want := map[string]string{
		"mcm_machine_create_duration_seconds": "10", "mcm_machine_initialize_duration_seconds": "1", "mcm_machine_join_duration_seconds": "40",
		"mcm_machine_drain_duration_seconds": "5", "mcm_machine_delete_duration_seconds": "20", "mcm_machine_num_failed_join": "2",
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(gauges)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range families {
		got[f.GetName()] = fmt.Sprint(f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue())
	}
	if !maps.Equal(got, want) {
		t.Errorf("metrics %v, want %v", got, want)
	}
	view.Deployments.Delete(objectcache.Key(d), "")
	if n := testutil.CollectAndCount(gauges); n > 0 || len(last.known) > 0 {
		t.Errorf("%d series and figures of %d MachineDeployments are left of one that is gone", n, len(last.known))
	}
}

// A client that may change a template can name any number of zones.
func TestLastMachinesMetricsAreBounded(t *testing.T) {
	view := objectcache.NewView()
	last := newLastMachines(view)
	_, m := family(view, "d")
	for i := range 1000 {
		m.Spec.NodeTemplateSpec.Labels = map[string]string{corev1.LabelTopologyZone: fmt.Sprint(i)}
		last.note(m, nil, timing{}, []lifecycle.Took{{Step: lifecycle.StepCreate, Duration: time.Minute}}, "")
	}
	gauges := telemetry.NewGauges(func() bool { return true }, view.Deployments.All, last.metrics()...)
	if n := testutil.CollectAndCount(gauges); n == 0 || n > mostPlaces {
		t.Errorf("%d series of one MachineDeployment, want at most %d", n, mostPlaces)
	}
}

func TestCollectorsCountMachinesThatExist(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.pass(time.Minute)
		view := b.process.cfg.View
		odd := b.get().DeepCopy()
		odd.Name, odd.UID, odd.Spec.Class.Name, odd.Status.CurrentStatus.Phase = "odd", "odd", "none", "Forged"
		odd.Status.CurrentStatus.LastUpdateTime = metav1.Time{}
		odd.Status.Conditions = append(odd.Status.Conditions, odd.Status.Conditions...)
		view.Machines.Apply(odd, true)
		registry := prometheus.NewRegistry()
		registry.MustRegister(b.process.Collectors(func() bool { return true }, telemetry.SeriesByMachine())...)
		created := b.get().CreationTimestamp.Unix()
		want := fmt.Sprintf(`
# HELP mcm_machine_current_status_phase The phase: -4 is Terminating, -3 Failed, -2 CrashLoopBackOff, -1 Unknown, 1 Running, and 0 any other.
# TYPE mcm_machine_current_status_phase gauge
mcm_machine_current_status_phase{name="m",namespace="n"} 1
mcm_machine_current_status_phase{name="odd",namespace="n"} 0
# HELP mcm_machine_info A Machine, when it was created, its VM, its class, and its Node.
# TYPE mcm_machine_info gauge
mcm_machine_info{createdAt="%[1]d",name="m",namespace="n",node_name="m",spec_class_api_group="",spec_class_kind="MachineClass",spec_class_name="c",spec_provider_id="%[2]s"} 1
mcm_machine_info{createdAt="%[1]d",name="odd",namespace="n",node_name="m",spec_class_api_group="",spec_class_kind="MachineClass",spec_class_name="none",spec_provider_id="%[2]s"} 1
# HELP mcm_machine_items_total Machines.
# TYPE mcm_machine_items_total gauge
mcm_machine_items_total 2
# HELP mcm_machine_status_condition A condition of the Node: 1 is True, 0 False, 2 Unknown.
# TYPE mcm_machine_status_condition gauge
mcm_machine_status_condition{condition="Ready",name="m",namespace="n"} 1
mcm_machine_status_condition{condition="Ready",name="odd",namespace="n"} 1
`, created, b.get().Spec.ProviderID)
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "mcm_machine_items_total", "mcm_machine_info",
			"mcm_machine_current_status_phase", "mcm_machine_status_condition"); err != nil {
			t.Error(err)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if value := m.GetGauge().GetValue(); value != 0 && strings.HasPrefix(f.GetName(), "mcf_") {
					got[f.GetName()+" "+labelOf(m, "provider")+" "+labelOf(m, "phase")] = value
				}
			}
		}
		age := time.Since(b.get().CreationTimestamp.Time).Seconds()
		inPhase := time.Since(b.get().Status.CurrentStatus.LastUpdateTime.Time).Seconds()
		wanted := map[string]float64{
			"mcf_machines test Running": 1, "mcf_machines other other": 1,
			"mcf_oldest_machine_seconds test Running": inPhase, "mcf_oldest_machine_seconds other other": age,
		}
		if !maps.Equal(got, wanted) {
			t.Errorf("machines by phase %v, want %v", got, wanted)
		}
	})
}

// Without the switch the number of series does not depend on the number of machines.
func TestNumberOfSeriesIsFixedWithoutSeriesByMachine(t *testing.T) {
	onBench(t, func(b *bench) {
		count := func(byMachine []string) (n int) {
			registry := prometheus.NewRegistry()
			registry.MustRegister(b.process.Collectors(func() bool { return true }, byMachine)...)
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				n += len(f.GetMetric())
			}
			return n
		}
		none := count(nil)
		for i := range 100 {
			m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i))}}
			b.process.cfg.View.Machines.Apply(m, true)
		}
		if got := count(nil); got != none {
			t.Errorf("%d series with 100 machines, want %d as without", got, none)
		}
		if got := count([]string{telemetry.MachinePhase}); got != none+100 {
			t.Errorf("%d series with one of each of 100 machines, want %d", got, none+100)
		}
	})
}

// TestEventsHaveTheTraceOfTheirStage: also of one that the pass has begun, or has begun and ended.
func TestEventsHaveTheTraceOfTheirStage(t *testing.T) {
	since := metav1.NewTime(time.Unix(1000, 0))
	in := func(phase v1alpha1.MachinePhase) *v1alpha1.Machine {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m", UID: "u"}}
		m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: phase, LastUpdateTime: since}
		return m
	}
	creation, update := telemetry.Stage{Name: "create machine", ID: "u"}, telemetry.Stage{Name: "update machine in place", ID: "u/1000"}
	for _, tc := range []struct {
		name       string
		pass       telemetry.Stage
		before, is v1alpha1.MachinePhase
		want       telemetry.Stage
	}{
		{"the update begins", telemetry.Stage{}, v1alpha1.MachineRunning, v1alpha1.MachineInPlaceUpdating, update},
		{"the update ends", update, v1alpha1.MachineInPlaceUpdating, v1alpha1.MachineInPlaceUpdateSuccessful, update},
		{
			"the update has begun in the same pass",
			telemetry.Stage{},
			v1alpha1.MachineInPlaceUpdating, v1alpha1.MachineInPlaceUpdateSuccessful,
			update,
		},
		{"the creation ends", creation, v1alpha1.MachinePending, v1alpha1.MachineRunning, creation},
		{"in no stage", telemetry.Stage{}, v1alpha1.MachineRunning, v1alpha1.MachineUnknown, telemetry.Stage{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(1)
			c := &writer{events: recorder}
			ctx, span := telemetry.StartPass(t.Context(),
				sdktrace.NewTracerProvider().Tracer(""), telemetry.Pass{Controller: "machine", Key: "n/m", Stage: tc.pass})
			defer span.End()
			c.report(ctx, in(tc.before), in(tc.is), lifecycle.Event{Reason: v1alpha1.EventInPlaceUpdated, Message: "done"})
			suffix := "done"
			if tc.want != (telemetry.Stage{}) {
				suffix += " (trace " + tc.want.TraceID() + ")"
			}
			if got := <-recorder.Events; !strings.HasSuffix(got, suffix) {
				t.Errorf("Event %q, want it to end with %q", got, suffix)
			}
		})
	}
}
