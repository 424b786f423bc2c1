//go:build e2e

package monitoring

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/mcmcrds"
)

// syncs is --concurrent-syncs: few, so that few machines are more than a replica should carry.
const syncs = 8

// The timeouts of the fleet are divided by speed, like the rules, or nearly so.
func fastFlags() []string {
	return []string{
		fmt.Sprintf("--concurrent-syncs=%d", syncs),
		"--machine-creation-timeout=40s", "--machine-health-timeout=20s", "--resource-exhausted-retry=2s",
		"--machine-safety-orphan-vms-period=5s", "--machine-safety-orphan-vms-quarantine=10s", "--safety-max-orphan-deletions=0",
		"--machine-safety-apiserver-statuscheck-timeout=3s", "--machine-safety-apiserver-statuscheck-period=3s",
		"--deletion-log=/dev/full", // each receipt is lost
	}
}

// A defect of the fleet cannot be caused from outside, all processes of the lab have one clock, and
// its replicas serve no autoscalers, since they would do so on one port. promtool tests these
// alerts.
const defect, clocks, autoscalers = prefix + "Defect", prefix + "ClocksDiffer", prefix + "AutoscalersFail"

// TestAlerts has each alert of the chart fire by a fault, after a rollout in which none does. What
// fires without a fault that is known to cause it is an error.
func TestAlerts(t *testing.T) {
	if testing.Short() {
		t.Skip("alerts wait; make alerts-e2e has them")
	}
	s := newScene(t, harness.Options{Refused: refused}, fastFlags()...)
	s.lenientDefinitions()
	s.runs("quiet", 3)
	s.roll("quiet", "pool", "second")
	s.rest(time.Hour / speed)
	expected := map[string]bool{prefix + "ReceiptsLost": true} // the rollout has deleted machines
	if fired := s.fired(); slices.ContainsFunc(fired, func(alert string) bool { return !expected[alert] }) {
		t.Errorf("want no alert in a rollout without faults, got %v", fired)
	}

	s.clouds(`{"faults":[{"operations":["CreateInstance"],"zones":["` + zoneFull + `"],"kind":"quota","rate":1},` +
		`{"operations":["DeleteInstance"],"zones":["` + zoneStuck + `"],"kind":"unavailable","rate":1}]}`)
	for _, f := range append(ofTenants(), ofFleet()...) {
		for _, alert := range f.alerts {
			name, _, _ := strings.Cut(prefix+alert, " ")
			expected[name] = true
		}
	}
	t.Run("tenants", func(t *testing.T) {
		for _, f := range ofTenants() {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				s.of(t).causes(f)
			})
		}
	})
	for _, f := range ofFleet() {
		t.Run(f.name, func(t *testing.T) { s.of(t).causes(f) })
		s.must(s.lab.WaitHeld(s.ctx, slots))
	}

	expected[defect], expected[clocks], expected[autoscalers] = true, true, true
	missing := slices.DeleteFunc(without(s.alerts, expected), func(name string) bool {
		return slices.ContainsFunc(ofTargets(), func(f fault) bool { return slices.Contains(f.alerts, strings.TrimPrefix(name, prefix)) })
	})
	if len(missing) > 0 {
		t.Errorf("want a fault for each alert, got none for %v", missing)
	}
	fired := map[string]bool{}
	for _, alert := range s.fired() {
		fired[alert] = true
	}
	if more := without(fired, expected); len(more) > 0 {
		t.Errorf("alerts that no fault explains have fired: %v", more)
	}
	t.Logf("%d of %d alerts have fired", len(fired), len(s.alerts))
}

// TestAlertsOfTargets has the alerts about target clusters of namespaces fire by faults.
func TestAlertsOfTargets(t *testing.T) {
	if testing.Short() {
		t.Skip("alerts wait; make alerts-e2e has them")
	}
	s := newScene(t, harness.Options{Light: 4})
	members, err := s.lab.Members()
	s.must(err)
	for _, m := range members {
		s.deploy(m.Name, "pool", 1, func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "small" })
		s.must(s.lab.Running(s.ctx, m.Name, 1))
	}
	for _, f := range ofTargets() {
		var want []string
		for _, alert := range f.alerts {
			want = append(want, prefix+alert)
		}
		before := s.fired()
		t.Run(f.name, func(t *testing.T) { s.of(t).causes(f) })
		if fired := slices.DeleteFunc(s.fired(), func(alert string) bool { return slices.Contains(before, alert) }); !slices.Equal(fired, want) {
			t.Errorf("%s: got the alerts %v, want %v", f.name, fired, want)
		}
	}
}

// without returns the names in all that are not in the others, sorted.
func without(all, others map[string]bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool { return others[name] })
}

// causes runs a fault until its alerts fire, and the checks of their runbooks show it.
func (s *scene) causes(f fault) {
	s.Helper()
	start := time.Now()
	if end := f.run(s); end != nil {
		s.Cleanup(end)
	}
	waiting := map[string]bool{}
	for _, alert := range f.alerts {
		waiting[prefix+alert] = true
	}
	s.eventually("the alerts fire", func(ctx context.Context) error {
		firing, err := s.firing(ctx)
		if err != nil {
			return err
		}
		for alert := range firing {
			if waiting[alert] {
				delete(waiting, alert)
				s.Logf("%s fires after %.0f s", alert, time.Since(start).Seconds())
			}
		}
		if len(waiting) > 0 {
			return fmt.Errorf("%s do not fire; those that do: %v", slices.Sorted(maps.Keys(waiting)), slices.Sorted(maps.Keys(firing)))
		}
		return nil
	})
	for _, alert := range f.alerts {
		name, _, _ := strings.Cut(alert, " ")
		if text, shows := shown()[name]; shows {
			s.show(name, text)
		}
	}
}

// lenientDefinitions replaces the definitions of the API by those of Machine Controller Manager,
// with which objects can be stored that do not decode.
func (s *scene) lenientDefinitions() {
	s.Helper()
	client, err := dynamic.NewForConfig(s.lab.Config)
	s.must(err)
	definitions, err := mcmcrds.Lenient()
	s.must(err)
	s.must(mcmcrds.Replace(s.ctx, client, definitions))
}

// apply applies a manifest.
func (s *scene) apply(manifest string) {
	s.Helper()
	file := filepath.Join(s.TempDir(), "manifest.yaml")
	s.must(os.WriteFile(file, []byte(strings.TrimSpace(manifest)), 0o600))
	_, err := s.lab.Kubectl(s.ctx, "apply", "-f", file)
	s.must(err)
}
