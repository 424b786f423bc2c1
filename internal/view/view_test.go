package view

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestDefaultTimeoutsAreThoseOfFlags: the page of flags is generated from the program.
func TestDefaultTimeoutsAreThoseOfFlags(t *testing.T) {
	content, err := os.ReadFile("../../docs/flags.md")
	if err != nil {
		t.Fatal(err)
	}
	defaultOf := func(flag string) string {
		_, rest, _ := strings.Cut(string(content), "| `--"+flag+"` | `")
		value, _, _ := strings.Cut(rest, "`")
		return value
	}
	timeouts := DefaultTimeouts()
	for flag, is := range map[string]time.Duration{
		"machine-creation-timeout": timeouts.Creation, "machine-health-timeout": timeouts.Health, "machine-drain-timeout": timeouts.Drain,
		"machine-inplace-update-timeout": timeouts.InPlaceUpdate, "machine-preserve-timeout": timeouts.Preserve,
	} {
		if want, err := time.ParseDuration(defaultOf(flag)); err != nil || is != want {
			t.Errorf("--%s: %s, and the page has %q", flag, is, defaultOf(flag))
		}
	}
	if want := defaultOf("machine-max-evict-retries"); strconv.Itoa(timeouts.MaxEvictRetries) != want {
		t.Errorf("--machine-max-evict-retries: %d, and the page has %q", timeouts.MaxEvictRetries, want)
	}
}

// TestRolloutStates has one deployment for each state of a rollout.
func TestRolloutStates(t *testing.T) {
	isFalse := func(d *v1alpha1.MachineDeployment, kind v1alpha1.MachineDeploymentConditionType, reason string) {
		c := v1alpha1.MachineDeploymentCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason}
		d.Status.Conditions = append(d.Status.Conditions, c)
	}
	for name, tc := range map[string]struct {
		change       func(d *v1alpha1.MachineDeployment)
		done, failed bool
	}{
		"done":          {func(*v1alpha1.MachineDeployment) {}, true, false},
		"not observed":  {func(d *v1alpha1.MachineDeployment) { d.Generation = 3 }, false, false},
		"too few new":   {func(d *v1alpha1.MachineDeployment) { d.Status.UpdatedReplicas = 1 }, false, false},
		"old ones left": {func(d *v1alpha1.MachineDeployment) { d.Status.Replicas = 3 }, false, false},
		"not available": {func(d *v1alpha1.MachineDeployment) { d.Status.AvailableReplicas = 1 }, false, false},
		"deadline exceeded": {func(d *v1alpha1.MachineDeployment) {
			d.Status.UpdatedReplicas = 1
			isFalse(d, v1alpha1.MachineDeploymentProgressing, v1alpha1.ReasonProgressDeadlineExceeded)
		}, false, true},
		"invalid": {func(d *v1alpha1.MachineDeployment) {
			isFalse(d, v1alpha1.MachineDeploymentValid, v1alpha1.ReasonInvalidSpec)
		}, false, true},
		"a class that may be corrected": {func(d *v1alpha1.MachineDeployment) {
			d.Status.AvailableReplicas = 0
			isFalse(d, v1alpha1.MachineDeploymentValid, v1alpha1.ReasonInvalidClass)
		}, false, false},
	} {
		d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Generation: 2}}
		d.Spec.Replicas, d.Status.ObservedGeneration = 2, 2
		d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas = 2, 2, 2
		tc.change(d)
		if r := RolloutOf(d, nil); r.Done != tc.done || r.Failed != tc.failed || r.Text == "" {
			t.Errorf("%s: got %+v", name, r)
		}
	}
}

func TestReadMetrics(t *testing.T) {
	const text = `# HELP process_cpu_seconds_total CPU
process_cpu_seconds_total 12.5
process_resident_memory_bytes 7.340032e+07
mcf_build_info{commit="abc",go_version="go1.26.8",version="v0.1.0"} 1
mcf_in_flight 3
workqueue_depth{name="machine"} 2
workqueue_depth{name="a name"} 1
mcf_oldest_waiting_key_seconds{controller="machine"} 0.5
mcf_oldest_waiting_key_seconds{controller="machineset"} 4
broken line here
`
	got := ReadMetrics(text).Since(Metrics{cpu: 12}, time.Second)
	want := Metrics{Version: "v0.1.0", Commit: "abc", Cores: 0.5, Memory: 70 << 20, InFlight: 3, Waiting: 3, Oldest: 4, cpu: 12.5}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if restarted := (Metrics{cpu: 1}).Since(Metrics{cpu: 12}, time.Second); restarted.Cores != 0 {
		t.Errorf("a replica that has restarted in between uses %v cores", restarted.Cores)
	}
}

// TestLevelsAreOrdered: what is not known sorts last.
func TestLevelsAreOrdered(t *testing.T) {
	levels := []Level{"", Note, Error, Warning}
	slices.SortFunc(levels, func(a, b Level) int { return a.rank() - b.rank() })
	if want := []Level{Error, Warning, Note, ""}; !slices.Equal(levels, want) {
		t.Errorf("got %q, want %q", levels, want)
	}
}

// TestUnlabeledIsTroubleAfterSomeTime: a fleet that was just installed has no slots yet.
func TestUnlabeledIsTroubleAfterSomeTime(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for age, want := range map[time.Duration]int{time.Second: 0, 2 * time.Minute: 1} {
		set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "s", CreationTimestamp: metav1.NewTime(now.Add(-age))}}
		if got := SetTroubles(set, now); len(got) != want {
			t.Errorf("after %s: %+v", age, got)
		}
	}
}
