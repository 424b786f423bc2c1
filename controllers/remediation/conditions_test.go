package remediation

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

func TestBreakerOf(t *testing.T) {
	zone, cluster := disruption.Scope{Zone: "z"}, disruption.Scope{}
	last := disruption.DefaultThresholds()
	never := last
	never.TryAfter = 0
	const rest = " are not replaced: at least 2 machines, and more than 50 % of them, were not Ready there. " +
		"They are replaced again when less than 30 % have not been Ready for 5m0s"
	for _, tc := range []struct {
		open    []disruption.Scope
		with    disruption.Thresholds
		ignored string
		want    condition
	}{
		{nil, last, "", condition{}},
		{nil, last, "ignored", machinefacts.False(v1alpha1.ReasonThresholdsIgnored, "ignored")},
		{[]disruption.Scope{zone}, never, "", machinefacts.True(v1alpha1.ReasonZoneNotReady,
			"Unhealthy machines in zone z of the target cluster"+rest)},
		{[]disruption.Scope{{Zone: "z", Namespace: "n"}}, never, "", machinefacts.True(
			v1alpha1.ReasonZoneNotReady, "Unhealthy machines in zone z of the target cluster are not replaced in namespace n: "+
				strings.Replace(strings.TrimPrefix(rest, " are not replaced: "), "there.", "there, counted in all namespaces.", 1),
		)},
		{[]disruption.Scope{cluster, zone}, last, "ignored", machinefacts.True(
			v1alpha1.ReasonTargetNotReady,
			"Unhealthy machines in the target cluster, zone z of the target cluster"+rest+
				"; until then, one after the other, those that have waited for 2h0m0s. ignored",
		)},
	} {
		if got := breakerOf(tc.open, tc.with, tc.ignored); got != tc.want {
			t.Errorf("%v: %+v, want %+v", tc.open, got, tc.want)
		}
	}
}

// The counts in the log are of the scope next to them, also where the circuit breaker applies in
// one namespace.
func TestLogHasTheScopeOfItsCounts(t *testing.T) {
	text := &ktesting.BufferTL{}
	is := disruption.Snapshot{Open: map[disruption.Scope]disruption.Count{{Zone: "z", Namespace: "n"}: {Ready: 2, NotReady: 12}}}
	ctx := klog.NewContext(t.Context(), ktesting.NewLogger(text, ktesting.NewConfig()))
	log(ctx, disruption.DefaultThresholds(), disruption.Snapshot{}, is)
	log(ctx, disruption.DefaultThresholds(), is, disruption.Snapshot{})
	for _, want := range []string{"Opened", "Closed"} {
		want += ` circuit breaker thresholds="not-ready=2,percent=50,close-percent=30,close-after=5m0s,try-after=2h0m0s" scope="zone z of the target cluster" namespace="n" ready=2 notReady=12`
		if !strings.Contains(text.String(), want) {
			t.Errorf("expected a line with %s, got\n%s", want, text)
		}
	}
}

func TestHeldOf(t *testing.T) {
	for _, tc := range []struct {
		by                  string
		waiting, unreserved int
		want                string
	}{
		{"hold", 0, 0, " "},
		{"", 3, 0, " "}, // Namespaces and the leader Lease are not read yet
		{"", 3, 2, "DeletionBudget: 2;"},
		{"hold", 9, 2, "HoldAnnotation: 9. Deletions are held by the hold"},
		{"hold", 10, 0, "HoldAnnotation: at least 10."},
		{"hold", 19, 0, "HoldAnnotation: at least 10."},
		{"hold", 20, 0, "HoldAnnotation: at least 20."},
		{"hold", 1 << 20, 0, "HoldAnnotation: at least 5000."},
	} {
		is := heldOf(tc.by, disruption.Verdict{Waiting: tc.waiting, Unreserved: tc.unreserved}, deletion.Grant{})
		_, numbers, _ := strings.Cut(is.Message, ":")
		if got := fmt.Sprint(is.Reason, ":", numbers); tc.want == " " && is != (condition{}) ||
			tc.want != " " && (!is.IsTrue() || !strings.HasPrefix(got, tc.want)) {
			t.Errorf("%+v: %s", tc, got)
		}
	}
	if v1alpha1.MachineSetDeletionsHeld != v1alpha1.MachineSetConditionType(v1alpha1.MachineDeploymentDeletionsHeld) {
		t.Error("the condition has different types")
	}
}

func TestConfigWithoutAThresholdIsInvalid(t *testing.T) {
	b := newBench(t)
	defer b.end()
	cfg := b.cfg
	cfg.Limits.Thresholds.Percent = 0
	if err := cfg.Validate(); err == nil {
		t.Error("thresholds that open at 0 % are valid")
	}
}
