package groups_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/groups"
)

func TestGroups(t *testing.T) {
	frozen := condition(v1alpha1.MachineDeploymentFrozen, corev1.ConditionTrue, v1alpha1.ReasonFreezeLabel)
	invalid := condition(v1alpha1.MachineDeploymentValid, corev1.ConditionFalse, "InvalidClass")
	unfinished := condition(v1alpha1.MachineDeploymentProgressing, corev1.ConditionTrue, v1alpha1.ReasonMachineSetUpdated)
	const of = "MachineDeployment n/pool, class c"
	for _, tc := range []struct {
		name, held, off string
		pool            *v1alpha1.MachineDeployment
		want            []groups.Group
	}{
		{name: "limits", pool: deployment("pool", 3, "1 10"), want: []groups.Group{{ID: "pool", Min: 1, Max: 10, Debug: of}}},
		{name: "no limits", pool: deployment("pool", 3, ""), want: []groups.Group{}},
		{name: "the minimum exceeds the maximum", pool: deployment("pool", 3, "11 10"), want: []groups.Group{}},
		{name: "a maximum that is no number", pool: deployment("pool", 3, "1 ten"), want: []groups.Group{}},
		{name: "being deleted", pool: deployment("pool", 3, "1 10", func(d *v1alpha1.MachineDeployment) {
			d.DeletionTimestamp = machine("m", "", "", leaving).DeletionTimestamp
		}), want: []groups.Group{}},
		{name: "frozen: it cannot grow", pool: deployment("pool", 2, "1 10", frozen), want: []groups.Group{
			{ID: "pool", Min: 1, Max: 2, Debug: of + "; no machines are created: it is frozen, FreezeLabel"},
		}},
		{name: "frozen, and a machine is missing", pool: deployment("pool", 3, "1 10", frozen), want: []groups.Group{
			{ID: "pool", Min: 1, Max: 2, Debug: of + "; no machines are created: it is frozen, FreezeLabel"},
		}},
		{name: "frozen and smaller than its minimum", pool: deployment("pool", 0, "1 10", frozen), want: []groups.Group{
			{ID: "pool", Min: 0, Max: 0, Debug: of + "; no machines are created: it is frozen, FreezeLabel"},
		}},
		{name: "invalid: it cannot grow", pool: deployment("pool", 2, "1 10", invalid), want: []groups.Group{
			{ID: "pool", Min: 1, Max: 2, Debug: of + "; no machines are created: it is invalid, InvalidClass"},
		}},
		{name: "held: it cannot shrink", held: "an audit", pool: deployment("pool", 3, "1 10"), want: []groups.Group{
			{ID: "pool", Min: 3, Max: 10, Debug: of + "; deletions are held: an audit"},
		}},
		{name: "held and larger than its maximum", held: "an audit", pool: deployment("pool", 30, "1 10"), want: []groups.Group{
			{ID: "pool", Min: 30, Max: 30, Debug: of + "; deletions are held: an audit"},
		}},
		{name: "rolling: it cannot shrink", pool: deployment("pool", 3, "1 10", rolling), want: []groups.Group{
			{ID: "pool", Min: 3, Max: 10, Debug: of + "; a rollout is in progress"},
		}},
		{name: "the template has just changed", pool: deployment("pool", 3, "1 10", unfinished, func(d *v1alpha1.MachineDeployment) {
			d.Generation++
		}), want: []groups.Group{{ID: "pool", Min: 3, Max: 10, Debug: of + "; a rollout is in progress"}}},
		{name: "new, and its first machines cannot be created", pool: deployment("pool", 3, "1 10", unfinished), want: []groups.Group{
			{ID: "pool", Min: 1, Max: 10, Debug: of},
		}},
		{name: "off: it can do neither", pool: deployment("pool", 5, "1 10"), off: "it is switched off", want: []groups.Group{
			{ID: "pool", Min: 2, Max: 2, Debug: of + "; no machines are created: it is switched off"},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := world{deployments: []*v1alpha1.MachineDeployment{tc.pool}, held: tc.held, off: tc.off, machines: []*v1alpha1.Machine{
				machine("a", "pool-set", v1alpha1.MachineRunning), machine("b", "pool-set", ""),
				machine("c", "pool-set", v1alpha1.MachineTerminating, leaving),
			}}
			got := w.read().Groups()
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestInstances(t *testing.T) {
	out := &groups.Failure{Code: "ResourceExhausted", Message: "the cloud's message", OutOfResources: true}
	other := &groups.Failure{Code: "PermissionDenied", Message: "the cloud's message"}
	of := func(phase v1alpha1.MachinePhase, change ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
		return machine("m", "pool-set", phase, change...)
	}
	withoutVM := func(m *v1alpha1.Machine) { m.Spec.ProviderID = "" }
	without := func(state groups.State) groups.Instance { return groups.Instance{ID: "requested://m", State: state} }
	with := func(state groups.State) groups.Instance { return groups.Instance{ID: "vm://m", State: state} }
	for _, tc := range []struct {
		name    string
		machine *v1alpha1.Machine
		rolling bool
		want    groups.Instance
	}{
		{name: "it has no VM", machine: of(""), want: without(groups.Creating)},
		{name: "it waits for its Node", machine: of(v1alpha1.MachinePending), want: with(groups.Creating)},
		{name: "it runs", machine: of(v1alpha1.MachineRunning), want: with(groups.Running)},
		{name: "its Node is unhealthy", machine: of(v1alpha1.MachineUnknown), want: with(groups.Running)},
		{name: "it is being deleted", machine: of(v1alpha1.MachineTerminating, leaving), want: with(groups.Deleting)},
		{name: "it is marked", machine: of(v1alpha1.MachineRunning, marked), want: with(groups.Deleting)},
		{
			name: "the cloud has no capacity", machine: of(v1alpha1.MachineCrashLoopBackOff, failing("ResourceExhausted")),
			want: groups.Instance{ID: "requested://m", State: groups.Creating, Failure: out},
		},
		{
			name: "it has failed because the cloud has no capacity", machine: of(v1alpha1.MachineFailed, failing("ResourceExhausted"), withoutVM),
			want: groups.Instance{ID: "requested://m", State: groups.Creating, Failure: out},
		},
		{
			name: "the fleet may not create it", machine: of(v1alpha1.MachineCrashLoopBackOff, failing("PermissionDenied")),
			want: groups.Instance{ID: "requested://m", State: groups.Creating, Failure: other},
		},
		{
			name: "the cloud does not answer, which passes", machine: of(v1alpha1.MachineCrashLoopBackOff, failing("Unavailable")),
			want: without(groups.Creating),
		},
		{
			name: "a rollout has no capacity: the replicas must not decrease", rolling: true,
			machine: of(v1alpha1.MachineCrashLoopBackOff, failing("ResourceExhausted")),
			want:    without(groups.Creating),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := world{
				deployments: []*v1alpha1.MachineDeployment{
					deployment("pool", 1, "0 9"), deployment("other", 1, "0 9"), deployment("unscaled", 1, ""),
				},
				machines: []*v1alpha1.Machine{
					tc.machine, machine("a", "other-set", ""), machine("b", "unscaled-set", ""), machine("c", "", ""), machine("d", "gone-set", ""),
				},
			}
			if tc.rolling {
				rolling(w.deployments[0])
			}
			got, err := w.read().Instances("pool")
			checkCode(t, err, 0)
			if diff := cmp.Diff([]groups.Instance{tc.want}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// As many instances fail as may be deleted: an autoscaler deletes all of them in one call, and
// repeats a call that is refused in each loop.
func TestFailuresThatMayBeDeleted(t *testing.T) {
	for _, tc := range []struct {
		name, limits, held, off string
		rolling                 bool
		want                    int
	}{
		{name: "all", limits: "0 9", want: 3},
		{name: "down to the minimum", limits: "2 9", want: 2},
		{name: "at the minimum", limits: "4 9"},
		{name: "below the minimum", limits: "5 9"},
		{name: "held", limits: "0 9", held: "an audit"},
		{name: "off", limits: "0 9", off: "it is switched off"},
		{name: "rolling", limits: "0 9", rolling: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := world{deployments: []*v1alpha1.MachineDeployment{deployment("pool", 4, tc.limits)}, held: tc.held, off: tc.off}
			if tc.rolling {
				rolling(w.deployments[0])
			}
			for _, name := range []string{"a", "b", "c"} {
				w.machines = append(w.machines, machine(name, "pool-set", v1alpha1.MachineCrashLoopBackOff, failing("ResourceExhausted")))
			}
			w.machines = append(w.machines, machine("kept", "pool-set", v1alpha1.MachineCrashLoopBackOff, failing("ResourceExhausted"), preserved))
			read := w.read()
			all, err := read.Instances("pool")
			checkCode(t, err, 0)
			var failed []groups.Node
			for _, i := range all {
				if i.Failure != nil {
					failed = append(failed, instance(i.ID))
				}
			}
			if len(failed) != tc.want {
				t.Errorf("%d instances fail, want %d", len(failed), tc.want)
			}
			targets, err := read.Targets("pool", failed)
			checkCode(t, err, 0)
			_, err = groups.Delete(w.live(0), targets)
			checkCode(t, err, 0)
		})
	}
}

// A machine that was named is being deleted for the autoscaler at once: an error of it would be
// reason to delete it again, and to skip the loop.
func TestANamedMachineIsBeingDeletedAtOnce(t *testing.T) {
	w := world{
		deployments: []*v1alpha1.MachineDeployment{deployment("pool", 2, "0 9")},
		machines:    []*v1alpha1.Machine{machine("m", "pool-set", v1alpha1.MachineCrashLoopBackOff, failing("ResourceExhausted"))},
	}
	read := w.read()
	targets, err := read.Targets("pool", []groups.Node{instance("requested://m")})
	checkCode(t, err, 0)
	written, err := groups.Delete(w.live(0), targets)
	checkCode(t, err, 0)
	read = read.With(written)
	got, err := read.Instances("pool")
	checkCode(t, err, 0)
	if diff := cmp.Diff([]groups.Instance{{ID: "requested://m", State: groups.Deleting}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if size, err := read.TargetSize("pool"); size != 1 || err != nil {
		t.Errorf("size %d, %v", size, err)
	}
}

func TestGroupOfANode(t *testing.T) {
	bound := func(annotation, providerID string) groups.Node {
		return groups.Node{Name: "x", ProviderID: providerID, Annotations: map[string]string{v1alpha1.AnnotationMachine: annotation}}
	}
	w := world{
		deployments: []*v1alpha1.MachineDeployment{deployment("pool", 1, "0 9"), deployment("unscaled", 1, "")},
		machines: []*v1alpha1.Machine{
			machine("a", "pool-set", v1alpha1.MachineRunning), machine("b", "unscaled-set", v1alpha1.MachineRunning),
			machine("c", "", v1alpha1.MachineRunning), machine("d", "pool-set", ""),
			machine("aws", "pool-set", v1alpha1.MachineRunning, func(m *v1alpha1.Machine) { m.Spec.ProviderID = "aws:///eu-west-1/i-1" }),
			machine("e1", "pool-set", v1alpha1.MachineRunning, func(m *v1alpha1.Machine) { m.Spec.ProviderID = "vm://e" }),
			machine("e2", "unscaled-set", v1alpha1.MachineRunning, func(m *v1alpha1.Machine) { m.Spec.ProviderID = "vm://e" }),
		},
	}
	read := w.read()
	for _, tc := range []struct {
		name string
		node groups.Node
		want string
	}{
		{"by the provider ID", nodeOf("a"), "pool"},
		{"by the provider ID, before the Node is known to the machine", groups.Node{Name: "x", ProviderID: "vm://a"}, "pool"},
		{"an instance without a VM", instance("requested://d"), "pool"},
		{"an instance without a VM that has one now", instance("requested://a"), "pool"},
		{"of a MachineDeployment that is not scaled", nodeOf("b"), ""},
		{"of a machine without a MachineDeployment", nodeOf("c"), ""},
		{"of no machine", nodeOf("foreign"), ""},
		{"without a provider ID, bound", bound("n/a/uid-of-a", ""), "pool"},
		{"without a provider ID, bound to a machine of another namespace", bound("other/a/uid-of-a", ""), ""},
		{"without a provider ID, bound to an earlier machine", bound("n/a/earlier", ""), ""},
		{"without a provider ID", groups.Node{Name: "node-a"}, ""},
		{"bound to a machine with another VM", bound("n/a/uid-of-a", "vm://foreign"), ""},
		{"of AWS, with another form of the provider ID", bound("n/aws/uid-of-aws", "aws:///eu-west-1c/i-1"), "pool"},
		{"two machines have its provider ID", groups.Node{Name: "node-e1", ProviderID: "vm://e"}, "pool"},
		{"two machines have its provider ID, and none its name", groups.Node{Name: "x", ProviderID: "vm://e"}, ""},
		{"an empty name", instance("requested://"), ""},
	} {
		if got, ok := read.GroupOf(tc.node); got.ID != tc.want || ok != (tc.want != "") {
			t.Errorf("%s: %q, %t; want %q", tc.name, got.ID, ok, tc.want)
		}
	}
}

func TestUnknownGroups(t *testing.T) {
	read := world{deployments: []*v1alpha1.MachineDeployment{deployment("unscaled", 1, "")}}.read()
	for _, id := range []string{"", "unscaled", "other/pool", "../pool"} {
		_, err := read.TargetSize(id)
		checkCode(t, err, groups.NotFound)
		_, err = read.Instances(id)
		checkCode(t, err, groups.NotFound)
		_, err = read.Template(id)
		checkCode(t, err, groups.NotFound)
		_, err = read.Options(id)
		checkCode(t, err, groups.NotFound)
		_, err = read.Targets(id, nil)
		checkCode(t, err, groups.NotFound)
	}
}
