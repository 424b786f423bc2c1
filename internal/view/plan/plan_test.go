package plan

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// inPlace is a strategy that updates so many machines at a time.
func inPlace(unavailable int32) v1alpha1.MachineDeploymentStrategy {
	surge, most := intstr.FromInt32(0), intstr.FromInt32(unavailable)
	return v1alpha1.MachineDeploymentStrategy{
		Type: v1alpha1.InPlaceUpdateMachineDeploymentStrategyType,
		InPlaceUpdate: &v1alpha1.InPlaceUpdateMachineDeployment{
			UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: &surge, MaxUnavailable: &most},
			OrchestrationType:   v1alpha1.OrchestrationTypeAuto,
		},
	}
}

// TestUpdatesInPlaceKeepVMs: Nodes are drained and updated one after the other, and no VM is
// created.
func TestUpdatesInPlaceKeepVMs(t *testing.T) {
	in, d := standing(t, 3, func(d *v1alpha1.MachineDeployment) { d.Spec.Strategy = inPlace(1) })
	p := changed(t, in, d, func(d *v1alpha1.MachineDeployment) {
		metav1.SetMetaDataAnnotation(&d.Spec.Template.ObjectMeta, "version", "2")
	})
	counted(t, p, Machines{Before: 3, After: 3, Updated: 3, Most: 3, Least: 2})
	if len(p.Changes) != 1 || p.Changes[0].Effect != UpdatesInPlace {
		t.Errorf("changes: %+v", p.Changes)
	}
	if got, want := p.Time.Median.Duration, 3*(30*time.Second+5*time.Minute); got != want {
		t.Errorf("it takes %s, want %s", got, want)
	}
	drains := 0
	for _, s := range p.Steps {
		if s.Do == DrainNode {
			drains++
		}
	}
	if drains != 3 {
		t.Errorf("%d drains", drains)
	}
}

// TestRollbacksUseMachineSetsAgain: the template of an earlier MachineSet creates no other.
func TestRollbacksUseMachineSetsAgain(t *testing.T) {
	in, d := standing(t, 2, nil)
	after := d.DeepCopy()
	after.Spec.Template.Spec.Class.Name = "large"
	w := newWorld(in, Change{Before: d, After: after}, 0)
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	in.Snapshot.Sets, in.Snapshot.Machines, in.Snapshot.Nodes = w.sets, w.machinesByName(), nil
	p := changed(t, in, w.deployment, useClass("small"))
	counted(t, p, Machines{Before: 2, After: 2, Created: 2, Deleted: 2, Most: 3, Surge: 1, Least: 2})
	if !strings.Contains(p.Summary, "(revision 1), which is used again") {
		t.Errorf("the summary is %q", p.Summary)
	}
	if slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Do == CreateSet }) {
		t.Error("a MachineSet is created")
	}
}

// TestBudgetsThatBlockForGoodTakeTheTimeOfTheDrain, others are named only.
func TestBudgetsThatBlockForGoodTakeTheTimeOfTheDrain(t *testing.T) {
	for name, tc := range map[string]struct {
		healthy int32
		took    time.Duration
		stays   bool
	}{
		"all pods are healthy": {1, 3*time.Minute + 2*time.Hour, true},
		"one is not":           {0, 3 * time.Minute, false},
	} {
		in, d := standing(t, 1, nil)
		node := in.Snapshot.Nodes[0].Name
		in.Snapshot.Pods = []*corev1.Pod{{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "db-0", Labels: map[string]string{"app": "db"},
				OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", UID: "db", Controller: new(true)}},
			},
			Spec: corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			},
		}}
		in.Snapshot.Budgets = []*policyv1.PodDisruptionBudget{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", Generation: 1},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}},
			Status: policyv1.PodDisruptionBudgetStatus{
				ObservedGeneration: 1, CurrentHealthy: tc.healthy, ExpectedPods: 1, DesiredHealthy: 1,
			},
		}}
		p := changed(t, in, d, useClass("large"))
		if p.Time.Median.Duration != tc.took {
			t.Errorf("%s: it takes %s, want %s", name, p.Time.Median.Duration, tc.took)
		}
		if len(p.Blocked) != 1 || len(p.Blocked[0].Pods) != 1 || p.Blocked[0].Node != node {
			t.Fatalf("%s: blocked are %+v", name, p.Blocked)
		}
		if pod := p.Blocked[0].Pods[0]; pod.Pod != "shop/db-0" || pod.Stays != tc.stays || pod.Budgets[0] != "shop/db" {
			t.Errorf("%s: the pod is %+v", name, pod)
		}
	}
}

// TestTimesAreUnknownWithoutDurations: the order is the same.
func TestTimesAreUnknownWithoutDurations(t *testing.T) {
	in, d := standing(t, 3, nil)
	known := changed(t, in, d, useClass("large"))
	in.Durations = Durations{}
	p := changed(t, in, d, useClass("large"))
	if p.Time.Known || p.Time.Median.Duration != 0 {
		t.Errorf("the time is %+v", p.Time)
	}
	order := func(p Plan) (names []string) {
		for _, s := range p.Steps {
			names = append(names, string(s.Do)+" "+s.Name)
		}
		return names
	}
	if a, b := order(known), order(p); !slices.Equal(a, b) {
		t.Errorf("got %q, want %q", b, a)
	}
}

// TestP90IsThatOfTheWholeChange: it is longer than the median, and shorter than if each step took
// its own p90.
func TestP90IsThatOfTheWholeChange(t *testing.T) {
	in, d := standing(t, 6, nil)
	in.Durations = Durations{
		Run:    Distribution{{From: time.Minute, UpTo: 2 * time.Minute, Count: 50}, {From: 2 * time.Minute, UpTo: 10 * time.Minute, Count: 50}},
		Delete: Exactly(time.Minute),
	}
	p := changed(t, in, d, useClass("large"))
	most := 6 * (in.Durations.Run.Quantile(0.9) + time.Minute)
	if p.Time.P90.Duration <= p.Time.Median.Duration || p.Time.P90.Duration >= most {
		t.Errorf("median %s, p90 %s, and %s if each step took its p90", p.Time.Median.Duration, p.Time.P90.Duration, most)
	}
	if again := changed(t, in, d, useClass("large")); !slices.Equal(again.Time.Runs, p.Time.Runs) {
		t.Errorf("another time is %+v, and was %+v", again.Time, p.Time)
	}
}

func TestDistributions(t *testing.T) {
	h := &histogram{below: map[float64]float64{30: 4, 10: 2, 60: 4, 20: 2}}
	d := h.distribution()
	for q, want := range map[float64]time.Duration{
		0: 0, 0.25: 5 * time.Second, 0.5: 10 * time.Second, 0.75: 25 * time.Second, 1: 30 * time.Second,
	} {
		if got := d.Quantile(q); got != want {
			t.Errorf("quantile %v is %s, want %s", q, got, want)
		}
	}
	for sum, want := range map[float64]float64{0: 15, 40: 10, 50: 12.5, 60: 15, 75: 18.75, 80: 20} { // seconds
		h.sum = sum
		d, mean := h.distribution(), 0.0
		for i := range 1000 {
			mean += d.Quantile((float64(i)+0.5)/1000).Seconds() / 1000
		}
		if math.Abs(mean-want) > 0.15 || d.Quantile(1) != 30*time.Second {
			t.Errorf("with the sum %v s of 4 durations their mean is %.2f s, want %v; the longest is %s", sum, mean, want, d.Quantile(1))
		}
	}
	if Distribution(nil).Quantile(0.5) != 0 {
		t.Error("nothing has a quantile")
	}
	drawn := map[time.Duration]bool{}
	for run := range strata {
		drawn[d.Draw(run+1, "run", "a", 0)] = true
	}
	if len(drawn) != strata || d.Draw(0, "run", "a", 0) != d.Quantile(0.5) {
		t.Errorf("%d different durations in %d runs", len(drawn), strata)
	}
}

func TestReadDurations(t *testing.T) {
	answer := `# TYPE mcf_machine_step_seconds histogram
mcf_machine_step_seconds_bucket{provider="aws",step="run",le="60"} 0
mcf_machine_step_seconds_bucket{provider="aws",step="run",le="120"} 3
mcf_machine_step_seconds_bucket{provider="aws",step="run",le="+Inf"} 4
mcf_machine_step_seconds_sum{provider="aws",step="run"} 400
mcf_machine_step_seconds_bucket{provider="gcp",step="run",le="60"} 9
mcf_machine_step_seconds_bucket{provider="gcp",step="run",le="120"} 9
mcf_machine_step_seconds_bucket{provider="gcp",step="run",le="+Inf"} 9
mcf_machine_step_seconds_bucket{provider="aws",step="delete",le="60"} 2
mcf_machine_step_seconds_sum{provider="aws",step="delete"} 90
mcf_machine_step_seconds_count{provider="aws",step="delete"} 2
other{step="run"} 1
`
	d := ReadDurations([]string{answer, answer}, "aws")
	if d.Run.Count() != 8 || d.Run.Quantile(1) != 2*time.Minute || d.Run.Quantile(0) != time.Minute || d.Delete.Count() != 4 ||
		d.Delete[0].Mean != 0.75 ||
		d.Drain != nil {
		t.Errorf("got %+v", d)
	}
	if n := ReadDurations([]string{answer}, "").Run.Count(); n != 13 {
		t.Errorf("of all providers %v", n)
	}
}

// TestEveryChangeHasAPlan: in generated worlds a plan ends, never has more machines than the
// strategy allows, nor fewer available ones.
func TestEveryChangeHasAPlan(t *testing.T) {
	worlds.Check(t, 1, func(t *rapid.T) {
		limits := []string{"0", "1", "2", "25%", "50%"}
		surge, unavailable := rapid.SampledFrom(limits).Draw(t, "surge"), rapid.SampledFrom(limits).Draw(t, "unavailable")
		if surge == "0" && unavailable == "0" {
			surge = "1"
		}
		replicas, then := rapid.Int32Range(0, 12).Draw(t, "replicas"), rapid.Int32Range(0, 12).Draw(t, "then")
		in, d := standing(t, replicas, func(d *v1alpha1.MachineDeployment) { d.Spec.Strategy = rolling(surge, unavailable) })
		after := d.DeepCopy()
		after.Spec.Replicas = then
		if rapid.Bool().Draw(t, "template") {
			after.Spec.Template.Spec.Class.Name = "large"
		}
		p, err := OfDeployment(in, Change{Before: d, After: after})
		if err != nil {
			t.Fatal(err)
		}
		most := intstr.Parse(surge)
		beyond, _ := intstr.GetScaledValueFromIntOrPercent(&most, int(max(replicas, then)), true)
		m := p.Machines
		if !p.Ends || m.After != int(then) || m.Surge > beyond || m.Kept+m.Deleted != m.Before || m.Kept+m.Created != m.After {
			t.Fatalf("got %+v, ends %t, waits for %q", m, p.Ends, p.Waits)
		}
	})
}

// TestObjectsAreAppliedTogether: a MachineDeployment gets VMs of a class of the same files, the VMs
// of all at the same moment are counted, and the time is that of the slowest in each run.
func TestObjectsAreAppliedTogether(t *testing.T) {
	in, d := standing(t, 3, nil)
	in.Durations.Run = Distribution{{From: time.Minute, UpTo: 9 * time.Minute, Count: 1}}
	replaced, created := d.DeepCopy(), d.DeepCopy()
	replaced.Spec.Template.Spec.Class.Name = "huge"
	created.Name, created.UID, created.Spec.Replicas = "spot", "", 2
	huge := class("huge", "zone-b")
	huge.Namespace = d.Namespace
	plans, err := Of(in, Changes{
		Classes: []ClassChange{{After: huge}}, Deployments: []Change{{Before: d, After: replaced}, {After: created}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(plans) != 3 || !strings.Contains(strings.Join(plans[0].Notes, " "), "MachineDeployment workers wait for it") {
		t.Fatalf("got %+v", plans)
	}
	counted(t, plans[1], Machines{Before: 3, After: 3, Created: 3, Deleted: 3, Most: 4, Surge: 1, Least: 3})
	w := Together(plans)
	zones := []Zone{{Name: "zone-a", Before: 2, After: 2, Most: 4}, {Name: "zone-b", Before: 1, After: 3, Most: 3}}
	if w.VMs != (VMs{Before: 3, After: 5}) || w.Most != 6 || !slices.Equal(w.Zones, zones) {
		t.Errorf("VMs %+v, at once %d, zones %+v", w.VMs, w.Most, w.Zones)
	}
	if alone := max(plans[1].Time.Median.Duration, plans[2].Time.Median.Duration); w.Time.Median.Duration < alone || !w.Ends || !w.Time.Known {
		t.Errorf("it takes %+v, and the slowest alone %s", w.Time, alone)
	}
	plans[1].Time.Known, plans[2].Ends = false, false
	if w := Together(plans); w.Time.Known || w.Ends {
		t.Errorf("with one of which it is not known: %+v, ends %t", w.Time, w.Ends)
	}
}
