package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

var start = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// measured are durations without variance.
func measured() Durations {
	return Durations{
		Create: Exactly(20 * time.Second), Run: Exactly(2 * time.Minute), Delete: Exactly(time.Minute), Drain: Exactly(30 * time.Second),
		Update: Exactly(5 * time.Minute), Source: "the test",
	}
}

// tester is a test, or one in a generated world.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// standing returns the input for a deployment whose machines all run, which the plan is asked
// about.
func standing(t tester, replicas int32, change func(d *v1alpha1.MachineDeployment)) (Input, *v1alpha1.MachineDeployment) {
	t.Helper()
	labels := map[string]string{"name": "workers"}
	d := &v1alpha1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{
			Name: "workers", Namespace: "prod", UID: "d", Generation: 1, Labels: map[string]string{v1alpha1.LabelSlot: "3"},
		},
		Spec: v1alpha1.MachineDeploymentSpec{
			Replicas: replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Strategy: rolling("1", "0"),
			Template: v1alpha1.MachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "small"}},
			},
		},
	}
	if change != nil {
		change(d)
	}
	in := Input{
		Snapshot: view.Snapshot{
			Now: start, Timeouts: view.DefaultTimeouts(), Deployments: []*v1alpha1.MachineDeployment{d},
			Classes: []*v1alpha1.MachineClass{class("small", "zone-a"), class("large", "zone-a")},
		},
		Durations: measured(),
	}
	// A world in which the deployment has just been created makes the sets and machines.
	w := newWorld(in, Change{After: d}, 0)
	w.deployment.UID, w.deployment.Labels = d.UID, d.Labels
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	if !w.isDone() {
		t.Fatalf("the world has not settled: %s", w.waits)
	}
	in.Snapshot.Deployments = []*v1alpha1.MachineDeployment{w.deployment}
	in.Snapshot.Sets = w.sets
	in.Snapshot.Now = w.now.Add(time.Hour)
	for i, m := range w.machinesByName() {
		m = m.DeepCopy()
		m.CreationTimestamp = metav1.NewTime(start.Add(time.Duration(i) * time.Second))
		in.Snapshot.Machines = append(in.Snapshot.Machines, m)
		in.Snapshot.Nodes = append(in.Snapshot.Nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: m.Labels[v1alpha1.LabelNode], UID: types.UID("node-" + m.Name),
				Labels: map[string]string{
					corev1.LabelTopologyZone: fmt.Sprint("zone-", string(rune('a'+i%2))), v1alpha1.LabelMachineName: m.Name,
				},
				Annotations: map[string]string{v1alpha1.AnnotationMachine: v1alpha1.RefOf(m).String()},
			},
			Spec: corev1.NodeSpec{ProviderID: m.Spec.ProviderID},
		})
	}
	return in, w.deployment
}

func class(name, zone string) *v1alpha1.MachineClass {
	return &v1alpha1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name}, Provider: "simulated", NodeTemplate: &v1alpha1.NodeTemplate{Zone: zone},
	}
}

func rolling(surge, unavailable string) v1alpha1.MachineDeploymentStrategy {
	s, u := intstr.Parse(surge), intstr.Parse(unavailable)
	return v1alpha1.MachineDeploymentStrategy{
		Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
		RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{
			UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: &s, MaxUnavailable: &u},
		},
	}
}

// changed returns the plan of a change of a standing deployment.
func changed(t *testing.T, in Input, d *v1alpha1.MachineDeployment, change func(d *v1alpha1.MachineDeployment)) Plan {
	t.Helper()
	after := d.DeepCopy()
	change(after)
	p, err := OfDeployment(in, Change{Before: d, After: after})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func useClass(name string) func(d *v1alpha1.MachineDeployment) {
	return func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = name }
}

// counted compares the counts of a plan.
func counted(t *testing.T, p Plan, want Machines) {
	t.Helper()
	if p.Machines != want || !p.Ends {
		t.Errorf("got %+v, want %+v; it ends: %t, waits for %q", p.Machines, want, p.Ends, p.Waits)
		for _, s := range p.Steps {
			t.Logf("%s %s %s %s", s.After.Duration, s.Do, s.Name, s.Why)
		}
	}
}

func TestRollingUpdateReplacesOneAfterTheOther(t *testing.T) {
	in, d := standing(t, 3, nil)
	p := changed(t, in, d, useClass("large"))
	counted(t, p, Machines{Before: 3, After: 3, Created: 3, Deleted: 3, Most: 4, Surge: 1, Least: 3})
	if p.Time.Median.Duration != 9*time.Minute || p.Time.P90.Duration != 9*time.Minute || !p.Time.Known {
		t.Errorf("the time is %+v, want three times 2 min to join and 1 min to end", p.Time)
	}
	if len(p.Changes) != 1 || p.Changes[0].Effect != Replaces || p.Changes[0].Path != "spec.template.spec.class.name" {
		t.Errorf("changes: %+v", p.Changes)
	}
	var deleted []string
	for _, s := range p.Steps {
		if s.Do == DeleteMachine {
			deleted = append(deleted, s.Name)
		}
	}
	for i, m := range machinefacts.OldestFirst(in.Snapshot.Machines) {
		if deleted[i] != m.Name {
			t.Errorf("deleted are %q, and the oldest is first", deleted)
		}
	}
}

func TestFewerReplicasDeleteMachines(t *testing.T) {
	in, d := standing(t, 8, nil)
	p := changed(t, in, d, func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = 3 })
	counted(t, p, Machines{Before: 8, After: 3, Kept: 3, Deleted: 5, Most: 8, Least: 3})
}

func TestMoreReplicasCreateMachines(t *testing.T) {
	in, d := standing(t, 3, nil)
	p := changed(t, in, d, func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = 8 })
	counted(t, p, Machines{Before: 3, After: 8, Kept: 3, Created: 5, Most: 8, Least: 3})
}

// TestMachinesWithoutAClassAreNoVMs: the machine that is created for a template whose class does
// not exist replaces none, and so do machines without a VM that exist already.
func TestMachinesWithoutAClassAreNoVMs(t *testing.T) {
	in, d := standing(t, 5, nil)
	after := d.DeepCopy()
	after.Spec.Replicas, after.Spec.Template.Spec.Class.Name = 3, "nope"
	p, err := OfDeployment(in, Change{Before: d, After: after})
	if err != nil {
		t.Fatal(err)
	}
	want := Machines{Before: 5, After: 4, Kept: 3, Created: 1, WithoutVM: 1, Deleted: 2, Most: 5, Least: 3}
	if p.Machines != want || p.VMs != (VMs{Before: 5, After: 3}) || p.Ends {
		t.Errorf("got %+v, %+v, ends %t; want %+v", p.Machines, p.VMs, p.Ends, want)
	}
	if want := "Machines: 1 created without a VM, 2 deleted, 3 kept"; p.Summary != want {
		t.Errorf("the summary is %q, want %q", p.Summary, want)
	}
	for _, z := range p.Zones {
		if z.Name == "" {
			t.Errorf("a zone of no VM: %+v", z)
		}
	}

	in.Snapshot.Sets, in.Snapshot.Machines = nil, nil
	w := newWorld(in, Change{After: after}, 0) // three machines of the class
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	in.Snapshot.Deployments, in.Snapshot.Sets, in.Snapshot.Nodes = []*v1alpha1.MachineDeployment{w.deployment}, w.sets, nil
	in.Snapshot.Machines = w.machinesByName()
	p = changed(t, in, w.deployment, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Replicas = 4
	})
	if p.VMs != (VMs{}) || p.Machines.Kept != 3 || p.Machines.Most != 0 || len(p.Zones) != 0 {
		t.Errorf("got %+v, %+v, zones %+v", p.Machines, p.VMs, p.Zones)
	}
}

// TestAChangeOfTheClassEndsThatItIsInvalid: it is not in force any more, unless the other class
// does not exist either, or the class stays.
func TestAChangeOfTheClassEndsThatItIsInvalid(t *testing.T) {
	in, d := standing(t, 1, nil)
	d = d.DeepCopy()
	d.Spec.Template.Spec.Class.Name = "nope"
	d.Status.Conditions = []v1alpha1.MachineDeploymentCondition{{
		Type: v1alpha1.MachineDeploymentValid, Status: "False", Reason: v1alpha1.ReasonInvalidClass, Message: "nope does not exist",
	}}
	in.Snapshot.Deployments = []*v1alpha1.MachineDeployment{d}
	for class, want := range map[string]bool{"small": false, "neither": true, "nope": true} {
		p := changed(t, in, d, func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas, d.Spec.Template.Spec.Class.Name = 2, class })
		is := slices.ContainsFunc(p.InForce, func(t view.Trouble) bool { return t.Reason == v1alpha1.ReasonInvalidClass })
		if is != want {
			t.Errorf("class %s: in force %+v", class, p.InForce)
		}
	}
}
