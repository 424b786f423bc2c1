package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// running is a picture in which everything is as it is wanted.
func running(n int) picture {
	p := picture{Deployments: []deployment{{Name: "a", Desired: n, Phases: phases{v1alpha1.MachineRunning: n}}}}
	for range n {
		p.Nodes = append(p.Nodes, node{Kind: simulatedNode, Ready: true})
		p.VMs = append(p.VMs, vm{Zone: "sim-1a", State: cloudapi.StateRunning})
	}
	return p
}

func TestConfigured(t *testing.T) {
	p := running(3)
	p.Nodes[2].Configured = true
	for nodes, want := range map[int]progress{
		1: {Done: 1, Total: 1, What: "Nodes are configured", Reached: true},
		2: {Done: 1, Total: 2, What: "Nodes are configured"},
		0: {Done: 1, What: "Nodes are configured"},
	} {
		if diff := cmp.Diff(want, configured(nodes).reach(p)); diff != "" {
			t.Errorf("%d Nodes (-want +got):\n%s", nodes, diff)
		}
	}
}

func TestSettled(t *testing.T) {
	changed := func(p picture, change func(*picture)) picture {
		change(&p)
		return p
	}
	run := func(done, total int, reached bool) progress {
		return progress{Done: done, Total: total, What: "machines run", Reached: reached}
	}
	gone := func(done, total int, reached bool) progress {
		return progress{Done: done, Total: total, What: "machines are gone", Reached: reached}
	}
	for name, test := range map[string]struct {
		before int
		now    picture
		want   progress
	}{
		"all there":        {0, running(3), run(3, 3, true)},
		"nothing yet":      {0, picture{Deployments: []deployment{{Desired: 3}}}, run(0, 3, false)},
		"a Node not Ready": {0, changed(running(3), func(p *picture) { p.Nodes[1].Ready = false }), run(2, 3, false)},
		"a Node too many":  {0, changed(running(3), func(p *picture) { p.Nodes = append(p.Nodes, node{Ready: true}) }), run(3, 3, false)},
		"a VM too many":    {0, changed(running(3), func(p *picture) { p.VMs = append(p.VMs, vm{}) }), run(3, 3, false)},
		"a VM too few":     {0, changed(running(3), func(p *picture) { p.VMs = p.VMs[1:] }), run(3, 3, false)},
		"a machine too many": {
			0, changed(running(3), func(p *picture) { p.Deployments[0].Phases[v1alpha1.MachineTerminating] = 1 }), run(3, 3, false),
		},
		"not scaled down":    {5, changed(running(5), func(p *picture) { p.Deployments[0].Desired = 2 }), gone(0, 3, false)},
		"half scaled down":   {5, changed(running(4), func(p *picture) { p.Deployments[0].Desired = 2 }), gone(1, 3, false)},
		"a VM is left":       {5, changed(running(2), func(p *picture) { p.VMs = append(p.VMs, vm{}) }), gone(2, 3, false)},
		"scaled down":        {5, running(2), gone(3, 3, true)},
		"deleted":            {2, picture{}, gone(2, 2, true)},
		"the object is left": {2, picture{Deployments: []deployment{{Name: "a", Ending: true}}}, gone(2, 2, false)},
		"one in place of the other": {0, picture{
			Deployments: []deployment{
				{Name: "a", Desired: 1, Phases: phases{v1alpha1.MachineRunning: 2}},
				{Name: "b", Desired: 1},
			},
			Nodes: running(2).Nodes, VMs: running(2).VMs,
		}, run(1, 2, false)},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, settled(test.before).reach(test.now)); diff != "" {
				t.Errorf("progress (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodGoals(t *testing.T) {
	for name, test := range map[string]struct {
		goal goal
		pods pods
		want progress
	}{
		"not desired yet": {podsRun(), pods{}, progress{0, 0, "pods run", false}},
		"some":            {podsRun(), pods{Desired: 3, Running: 1, Others: 2}, progress{1, 3, "pods run", false}},
		"one too many":    {podsRun(), pods{Desired: 3, Running: 3, Others: 1}, progress{3, 3, "pods run", false}},
		"all":             {podsRun(), pods{Desired: 3, Running: 3}, progress{3, 3, "pods run", true}},
		"still there":     {podsGone(3), pods{Running: 1, Others: 1}, progress{1, 3, "pods are gone", false}},
		"still desired":   {podsGone(3), pods{Desired: 3}, progress{3, 3, "pods are gone", false}},
		"gone":            {podsGone(3), pods{}, progress{3, 3, "pods are gone", true}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.goal.reach(picture{Pods: test.pods})); diff != "" {
				t.Errorf("progress (-want +got):\n%s", diff)
			}
		})
	}
}

func TestShared(t *testing.T) {
	j := newJournal()
	j.see(lease("session-fleet-0", session0, ""), time.Time{})
	j.see(lease("session-fleet-1", session1, ""), time.Time{})
	slot := func(number int, session, assigned string) {
		j.see(lease(fmt.Sprintf("slot-%03d", number), session, assigned), time.Time{})
	}
	wantOf := func(want progress, machines ...machine) {
		t.Helper()
		if diff := cmp.Diff(want, shared(2).reach(picture{Fleet: j.fleet(machines)})); diff != "" {
			t.Errorf("progress (-want +got):\n%s", diff)
		}
	}
	held := func(done int, reached bool) progress {
		return progress{Done: done, Total: slots, What: "slots are held by 2 replicas", Reached: reached}
	}
	oneShare := progress{Done: 1, Total: 2, What: "replicas hold their share of the slots"}
	wantOf(held(0, false))
	for i := range slots {
		slot(i, session0, "fleet-0")
	}
	wantOf(oneShare) // fleet-1 has none
	slot(0, session1, "fleet-1")
	wantOf(oneShare) // it has one to begin with
	at0, at1 := machine{Slot: "0"}, machine{Slot: "1"}
	wantOf(held(slots, true), at0, at1, at1, at1) // with a quarter of the machines
	wantOf(oneShare, at0, at1, at1, at1, at1)
	for i := range slots / 4 {
		slot(i, session0, "fleet-1")
		wantOf(held(slots-1, false)) // it moves
		slot(i, session1, "fleet-1")
	}
	wantOf(held(slots, true)) // with a quarter of the slots
}

func TestUndisturbed(t *testing.T) {
	named := func(phase v1alpha1.MachinePhase, names ...string) picture {
		p := running(len(names))
		for _, name := range names {
			p.Machines = append(p.Machines, machine{Name: name, Phase: phase})
		}
		return p
	}
	before := named(v1alpha1.MachineRunning, "a", "b")
	lessAVM := named(v1alpha1.MachineRunning, "a", "b")
	lessAVM.VMs = lessAVM.VMs[1:]
	for name, test := range map[string]struct {
		now  picture
		want string
	}{
		"as before":   {before, ""},
		"one is gone": {named(v1alpha1.MachineRunning, "b"), "machine a must not change, and is gone"},
		"another one": {named(v1alpha1.MachineRunning, "b", "c"), "machine a must not change, and is gone"},
		"one more": {
			named(v1alpha1.MachineRunning, "a", "b", "c"), "expected 2 machines, Ready Nodes and VMs as before, got 3, 3 and 3",
		},
		"they do not run":   {named(v1alpha1.MachineUnknown, "a", "b"), `machine a must not change, and is "Unknown"`},
		"a VM has vanished": {lessAVM, "expected 2 machines, Ready Nodes and VMs as before, got 2, 2 and 1"},
	} {
		t.Run(name, func(t *testing.T) {
			scene, err := podsRun().undisturbed(before).scene(test.now)
			if got := fmt.Sprint(err); err != nil && got != test.want || err == nil && test.want != "" {
				t.Errorf("scene = %v, want %q", err, test.want)
			}
			if (scene.outcome == missed) != (err != nil) {
				t.Errorf("outcome = %d with %v", scene.outcome, err)
			}
		})
	}
}
