package merge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const (
	disk = `{"config":{"ignition":{"version":"3.5.0"},"storage":{"disks":[{"device":"/dev/vdb"}]}}}`
	file = `{"config":{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,a"}}]}}}`
)

func pool(name string) *v1alpha1.MachineConfigPool {
	p := &v1alpha1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3}}
	p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": "a"}}
	return p
}

// decide decides as the controller does, without its requests: only the contents that are needed
// are known.
func decide(w World) (v Verdict, wait time.Duration) {
	wait, due := Due(w)
	if !due {
		return Verdict{}, wait
	}
	r := Prepare(w)
	known := slices.Clone(w.Rendered)
	for i, one := range known {
		if !slices.Contains(r.Needs(w), one.Name) {
			known[i] = &v1alpha1.RenderedMachineConfig{ObjectMeta: one.ObjectMeta}
		}
	}
	w.Rendered = known
	return r.Decide(w), 0
}

// settled carries a verdict out as the controller does.
func settled(t *testing.T, w *World) Verdict {
	t.Helper()
	v, _ := decide(*w)
	if v.Create != nil {
		w.Rendered = append(w.Rendered, v.Create)
	}
	if v.Target != "" {
		s := &w.Pool.Status
		s.CurrentMachineConfig, s.AbandonedMachineConfigs, s.Sources = v.Target, v.Abandoned, v.Sources
	}
	return v
}

// A pool is created, gets another config, goes back, and finds the object that it had.
func TestDecideRollBackReusesObject(t *testing.T) {
	w := &World{
		Now: start, Pool: pool("a"), Configs: []*v1alpha1.MachineConfig{config("50-b", `{"kernelArguments":["quiet"]}`), config("00-a", file)},
	}
	first := settled(t, w)
	if first.Create == nil || first.Create.Name != first.Target || !first.Create.Verify() || first.Create.Labels[v1alpha1.LabelPool] != "a" {
		t.Fatalf("created %+v for target %q", first.Create, first.Target)
	}
	if diff := cmp.Diff([]string{"00-a", "50-b"}, w.Pool.Status.Sources); diff != "" {
		t.Error(diff)
	}
	if again := settled(t, w); again.Create != nil || again.Target != first.Target {
		t.Errorf("nothing has changed: creates %v, target %q", again.Create, again.Target)
	}
	w.Pool.Status.CompletedMachineConfig = first.Target

	w.Configs = append(w.Configs, config("60-bad", `{"kernelArguments":["bad"]}`))
	bad := settled(t, w)
	if bad.Create == nil || bad.Target == first.Target || len(w.Pool.Status.AbandonedMachineConfigs) > 0 {
		t.Errorf("another config: creates %v, target %q, abandoned %q", bad.Create, bad.Target, w.Pool.Status.AbandonedMachineConfigs)
	}
	w.Configs = w.Configs[:2]
	back := settled(t, w)
	if back.Create != nil || back.Target != first.Target {
		t.Errorf("back: creates %v, target %q; want %q again", back.Create, back.Target, first.Target)
	}
	if diff := cmp.Diff([]string{bad.Target}, w.Pool.Status.AbandonedMachineConfigs); diff != "" {
		t.Errorf("abandoned: %s", diff)
	}
}

func TestAbandoned(t *testing.T) {
	many := strings.Split("t0 t1 t2 t3 t4 t5 t6 t7 t8 t9", " ")
	for _, tc := range []struct {
		name               string
		current, completed string
		before             []string
		next               string
		want               []string
	}{
		{"the first target", "", "", nil, "a", nil},
		{"a completed target is left", "a", "a", []string{"z"}, "b", []string{"z"}},
		{"a target is given up", "b", "a", nil, "c", []string{"b"}},
		{"another one", "c", "a", []string{"b"}, "d", []string{"b", "c"}},
		{"back to one that was given up", "c", "a", []string{"b"}, "b", []string{"c"}},
		{"the target stays", "c", "a", []string{"b"}, "c", []string{"b"}},
		{"given up twice", "b", "a", []string{"b", "c"}, "d", []string{"c", "b"}},
		{"too many", "t10", "a", many, "b", append(slices.Clone(many[1:]), "t10")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Abandoned(v1alpha1.MachineConfigPoolStatus{
				CurrentMachineConfig: tc.current, CompletedMachineConfig: tc.completed, AbandonedMachineConfigs: tc.before,
			}, tc.next)
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPoolsThatAreNotRendered(t *testing.T) {
	deleted := metav1.NewTime(start)
	for name, tc := range map[string]struct {
		change func(*World)
		want   string
	}{
		"paused":        {func(w *World) { w.Pool.Spec.Paused = true }, "nothing"},
		"being deleted": {func(w *World) { w.Pool.DeletionTimestamp = &deleted }, "nothing"},
		"a change a second ago": {
			func(w *World) { w.LastChange, w.FirstChange = start.Add(-time.Second), start.Add(-time.Second) }, "wait 4s",
		},
		"changes for half a minute": {func(w *World) { w.LastChange, w.FirstChange = start, start.Add(-28*time.Second) }, "wait 2s"},
		"changes for longer":        {func(w *World) { w.LastChange, w.FirstChange = start, start.Add(-30*time.Second) }, "target"},
		"a change a while ago": {
			func(w *World) { w.LastChange, w.FirstChange = start.Add(-5*time.Second), start.Add(-5*time.Second) }, "target",
		},
		"an empty selector":            {func(w *World) { w.Pool.Spec.MachineConfigSelector = &metav1.LabelSelector{} }, "True InvalidPool"},
		"no selector":                  {func(w *World) { w.Pool.Spec.MachineConfigSelector = nil }, "True NoMachineConfigs"},
		"no config":                    {func(w *World) { w.Configs = nil }, "True NoMachineConfigs"},
		"a config is being deleted":    {func(w *World) { w.Configs[0].DeletionTimestamp = &deleted }, "True NoMachineConfigs"},
		"a name that is too long":      {func(w *World) { w.Pool.Name = strings.Repeat("a", 64) }, "True InvalidPool"},
		"an invalid config":            {func(w *World) { w.Configs[0] = config("00-a", `{"kernelType":"x"}`) }, "True InvalidMachineConfig"},
		"irreconcilable":               {func(w *World) { w.Configs = append(w.Configs, config("50-b", disk)) }, "True Irreconcilable"},
		"irreconcilable, and replaced": {func(w *World) { w.Replaced = true; w.Configs = append(w.Configs, config("50-b", disk)) }, "target"},
		"irreconcilable, and the target is gone": {func(w *World) {
			w.Rendered = nil
			w.Configs = append(w.Configs, config("50-b", disk))
		}, "target"},
		"the object is being deleted": {func(w *World) { w.Rendered[0].DeletionTimestamp = &deleted }, "True NameTaken"},
		"the object is known": {func(w *World) {
			w.Rendered[0].Spec = v1alpha1.RenderedMachineConfigSpec{}
			w.Verified = map[string]bool{w.Rendered[0].Name: true}
		}, "target"},
		"the object has another content": {func(w *World) { w.Rendered[0].Spec.FIPS = true }, "True NameTaken"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &World{Now: start, Pool: pool("a"), Configs: []*v1alpha1.MachineConfig{config("00-a", file)}}
			before := settled(t, w).Target
			tc.change(w)
			got := "target"
			switch v, wait := decide(*w); {
			case wait > 0:
				got = fmt.Sprintf("wait %s", wait)
			case v.Condition == nil:
				got = "nothing"
			case v.Condition.Status == metav1.ConditionTrue:
				got = "True " + v.Condition.Reason
				if v.Target != "" || v.Create != nil || v.Condition.Message == "" || v.Condition.ObservedGeneration != 3 {
					t.Errorf("verdict %+v with a problem; the target was %q", v, before)
				}
			case v.Target == "" || v.Condition.Reason != ReasonRendered:
				t.Errorf("verdict %+v", v)
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// What the API server would reject in the RenderedMachineConfig is a condition of the pool, which
// names the field.
func TestInvalidActionsAreNamed(t *testing.T) {
	for _, tc := range []struct {
		action v1alpha1.ActionRule
		want   string
	}{
		{
			v1alpha1.ActionRule{Path: "/etc/a", Action: v1alpha1.ActionRestart, Service: "a/b"},
			`spec.actions[1]: expected the name of a unit as service, got "a/b". Correct this action of the pool.`,
		},
		{
			v1alpha1.ActionRule{Unit: "a b.service", Action: v1alpha1.ActionNone},
			`spec.actions[1]: expected the name of a unit as unit, got "a b.service". Correct this action of the pool.`,
		},
		{
			v1alpha1.ActionRule{Path: "/etc/a/", Action: v1alpha1.ActionNone},
			`spec.actions[1]: expected an absolute path such as "/etc/a", got "/etc/a/". Correct this action of the pool.`,
		},
		{v1alpha1.ActionRule{Unit: "a.service", Action: v1alpha1.ActionReload, Service: "b.service"}, ""},
	} {
		w := World{Now: start, Pool: pool("a"), Configs: []*v1alpha1.MachineConfig{config("00-a", file)}}
		w.Pool.Spec.Actions = []v1alpha1.ActionRule{{SSHKeys: true, Action: v1alpha1.ActionNone}, tc.action}
		v, _ := decide(w)
		got := ""
		if v.Condition.Status == metav1.ConditionTrue {
			got = v.Condition.Message
		}
		if got != tc.want || (v.Create == nil) != (tc.want != "") || tc.want != "" && v.Condition.Reason != ReasonInvalidPool {
			t.Errorf("%+v: creates %v, condition %+v; want the message %q", tc.action, v.Create, v.Condition, tc.want)
		}
	}
}

func TestKubeletSettingsOfAnotherPoolAreNotSelected(t *testing.T) {
	generated := func(of string) *v1alpha1.MachineConfig {
		c := config("99-"+of+"-kubelet-managed", file)
		c.Labels[v1alpha1.LabelPool] = of
		c.Annotations = map[string]string{v1alpha1.AnnotationGeneratedBy: v1alpha1.GeneratedFromKubeletConfigs}
		return c
	}
	unlabeled := generated("a")
	unlabeled.Labels = map[string]string{v1alpha1.LabelPool: "a"}
	other := config("10-other", file)
	other.Labels = map[string]string{"role": "b"}
	none := config("11-none", file)
	none.Labels = nil
	selected, err := Select(pool("a"), []*v1alpha1.MachineConfig{
		unlabeled, generated("b"), none, other, config("01-b", file), config("00-a", file),
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range selected {
		names = append(names, c.Name)
	}
	if diff := cmp.Diff([]string{"00-a", "01-b", "99-a-kubelet-managed"}, names); diff != "" {
		t.Errorf("selected (-want +got):\n%s", diff)
	}
}

func TestAffected(t *testing.T) {
	a, b, all := pool("a"), pool("b"), pool("all")
	b.Spec.MachineConfigSelector.MatchLabels["role"] = "b"
	all.Spec.MachineConfigSelector = &metav1.LabelSelector{} // selects none
	pools := []*v1alpha1.MachineConfigPool{b, all, a}
	labeled := func(role string) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Labels: map[string]string{"role": role}}
	}
	for _, tc := range []struct {
		name          string
		before, after *metav1.ObjectMeta
		want          []string
	}{
		{"created", nil, labeled("a"), []string{"a"}},
		{"deleted", labeled("b"), nil, []string{"b"}},
		{"relabeled", labeled("b"), labeled("a"), []string{"a", "b"}},
		{"labeled first", labeled(""), labeled("a"), []string{"a"}},
		{"of no pool", labeled(""), labeled("c"), nil},
	} {
		if diff := cmp.Diff(tc.want, Affected(pools, tc.before, tc.after)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}
