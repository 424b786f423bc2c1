package text_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/plan"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/text"
)

// TestPlans renders plans of changes: with a drain that is blocked, without times, while deletions
// are held, of a set that is frozen, of a class that does not exist, and of an object that does not
// exist.
func TestPlans(t *testing.T) {
	s := recorded(t, "plan.yaml")
	times := plan.Durations{
		Run: plan.Exactly(3 * time.Minute), Delete: plan.Exactly(90 * time.Second), Update: plan.Exactly(5 * time.Minute), Source: "the test",
	}
	held := s
	held.Namespaces = nil
	for _, n := range s.Namespaces {
		n = n.DeepCopy()
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationHoldDeletions, "incident 7")
		held.Namespaces = append(held.Namespaces, n)
	}
	frozen := s
	frozen.Sets = []*v1alpha1.MachineSet{s.Sets[0].DeepCopy()}
	metav1.SetMetaDataLabel(&frozen.Sets[0].ObjectMeta, v1alpha1.LabelFreeze, "True")
	useClass := func(name string) func(d *v1alpha1.MachineDeployment) {
		return func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = name }
	}
	compare(t, "plan.txt", func(style text.Style) string {
		var b strings.Builder
		for _, tc := range []struct {
			name   string
			of     view.Snapshot
			times  plan.Durations
			change func(d *v1alpha1.MachineDeployment)
		}{
			{"another class", s, times, useClass("large")},
			{"another class, no times", s, plan.Durations{}, useClass("large")},
			{"another class, deletions are held", held, times, useClass("large")},
			{"more replicas of a frozen set", frozen, times, func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = 5 }},
			{"a class that does not exist", s, times, useClass("huge")},
			{"labels of Nodes, and a pause", s, times, func(d *v1alpha1.MachineDeployment) {
				d.Spec.Paused, d.Spec.Template.Spec.NodeTemplateSpec.Labels = true, map[string]string{"pool": "x"}
			}},
			{"fewer replicas", s, times, func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = 1 }},
			{"nothing", s, plan.Durations{}, func(*v1alpha1.MachineDeployment) {}},
		} {
			after := s.Deployments[0].DeepCopy()
			tc.change(after)
			b.WriteString("# " + tc.name + "\n" + planned(t, tc.of, tc.times, plan.Change{Before: s.Deployments[0], After: after}, style) + "\n")
		}
		created := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "spot"}}
		created.Spec = *s.Deployments[0].Spec.DeepCopy()
		created.Spec.Selector.MatchLabels, created.Spec.Template.Labels = map[string]string{"name": "spot"}, map[string]string{"name": "spot"}
		b.WriteString("# a new one\n" + planned(t, s, times, plan.Change{After: created}, style))
		return b.String()
	})
}

// TestWhyTimesAreMissing: the reason is the one that holds, and a plan that does not end has no
// time.
func TestWhyTimesAreMissing(t *testing.T) {
	unread := view.Missing{What: "Metrics of fleet-0", Why: "it does not answer"}
	minute := plan.Time{Known: true, Median: metav1.Duration{Duration: time.Minute}, P90: metav1.Duration{Duration: time.Minute}}
	for name, tc := range map[string]struct {
		of   plan.Plan
		want string
	}{
		"nothing was measured": {plan.Plan{Creates: true, Ends: true}, "no replica has reported how long"},
		"metrics are not read": {
			plan.Plan{Creates: true, Ends: true, Missing: []view.Missing{unread}}, "could not be read; name their addresses with --endpoints",
		},
		"replicas are not known": {
			plan.Plan{Creates: true, Ends: true, Missing: []view.Missing{{What: view.MissingLeases}}}, "set --fleet-namespace",
		},
		"no source": {plan.Plan{Creates: true, Ends: true, Time: minute}, "Time: 1m (median), 1m (nine in ten).\n"},
		"no end":    {plan.Plan{Creates: true, Time: minute, Waits: "rain"}, "\nIt does not end: it waits for rain.\n"},
	} {
		got := text.Plans(plan.Together([]plan.Plan{tc.of}), text.Style{})
		if !strings.Contains(got, tc.want) || strings.Contains(got, "by .") || tc.of.Waits != "" && strings.Contains(got, "Time:") {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func planned(t *testing.T, s view.Snapshot, times plan.Durations, c plan.Change, style text.Style) string {
	t.Helper()
	p, err := plan.OfDeployment(plan.Input{Snapshot: s, Durations: times, Settings: plan.DefaultSettings()}, c)
	if err != nil {
		t.Fatal(err)
	}
	return text.Plans(plan.Together([]plan.Plan{p}), style)
}
