package main

import (
	"fmt"
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// progress is the progress towards a goal.
type progress struct {
	Done, Total int
	// What is counted, as in "3 of 7 machines run".
	What string
	// Reached reports whether the goal is complete, also in what is not counted.
	Reached bool
}

func (p progress) String() string { return fmt.Sprintf("%d of %d %s", p.Done, p.Total, p.What) }

// A goal is the condition that a step waits for.
type goal struct {
	// reach returns the progress.
	reach func(picture) progress
	// facts returns the rows of a picture that belong to it.
	facts func(picture) []fact
	// always checks what has to hold all the time; nil checks nothing.
	always func(picture) error
}

// scene shows a picture. Errors: what has to hold all the time does not.
func (g goal) scene(p picture) (scene, error) {
	s := scene{progress: g.reach(p), facts: g.facts(p)}
	if s.progress.Reached {
		s.outcome = reached
	}
	if g.always != nil {
		if err := g.always(p); err != nil {
			s.outcome = missed
			return s, err
		}
	}
	return s, nil
}

// settled is reached when there are exactly the desired machines: as running Machines, as Ready
// Nodes, and as VMs. before is how many machines there were.
func settled(before int) goal {
	return goal{facts: picture.machineFacts, reach: func(p picture) progress {
		desired, running, ready := p.desired(), p.running(), p.readyNodes()
		most := max(p.machines(), len(p.Nodes), len(p.VMs))
		least := min(running, ready, len(p.VMs))
		reached := most == desired && least == desired && p.fits()
		if desired < before {
			return progress{Done: max(before-most, 0), Total: before - desired, What: "machines are gone", Reached: reached}
		}
		return progress{Done: min(running, ready), Total: desired, What: "machines run", Reached: reached}
	}}
}

// podsRun is reached when all desired pods run.
func podsRun() goal {
	return goal{facts: picture.podFacts, reach: func(p picture) progress {
		reached := p.Pods.Desired > 0 && p.Pods.Running == p.Pods.Desired && p.Pods.Others == 0
		return progress{Done: min(p.Pods.Running, p.Pods.Desired), Total: p.Pods.Desired, What: "pods run", Reached: reached}
	}}
}

// configured is reached when so many Nodes are done with a configuration.
func configured(nodes int) goal {
	return goal{facts: picture.podFacts, reach: func(p picture) progress {
		done := p.configuredNodes()
		return progress{Done: done, Total: nodes, What: "Nodes are configured", Reached: done == nodes && nodes > 0}
	}}
}

// podsGone is reached when none of before pods is left.
func podsGone(before int) goal {
	return goal{facts: picture.podFacts, reach: func(p picture) progress {
		remaining := p.Pods.Running + p.Pods.Others
		return progress{Done: max(before-remaining, 0), Total: before, What: "pods are gone", Reached: p.Pods == pods{}}
	}}
}

// shared is reached when n replicas hold all slots, each of them its share.
func shared(replicas int) goal { return heldBy(replicaNames(replicas), "") }

// replicaNames are those of a fleet of n.
func replicaNames(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("fleet-%d", i))
	}
	return names
}

// heldBy is reached when the replicas hold all slots, each of them its share, and none is moving. A
// new replica has one slot at first, so that all slots are at rest before it has its share. dead is
// a session that was killed: its slots count as not held.
func heldBy(replicas []string, dead string) goal {
	return goal{
		facts: func(p picture) []fact { return p.Fleet.facts(dead) },
		reach: func(p picture) progress {
			held, shares := p.Fleet.heldBy(replicas, dead)
			if held == slots && shares < len(replicas) {
				return progress{Done: shares, Total: len(replicas), What: "replicas hold their share of the slots"}
			}
			return progress{Done: held, Total: slots, What: "slots are held by " + several(len(replicas), "replica"), Reached: held == slots}
		},
	}
}

// undisturbed adds to a goal that the machines stay the same and all run, with a Node and a VM
// each.
func (g goal) undisturbed(before picture) goal {
	facts := g.facts
	g.facts = func(p picture) []fact {
		return append(facts(p), fact{Label: "machines", Text: fmt.Sprintf("%d of %d have run all the time", p.running(), len(before.Machines))})
	}
	g.always = func(p picture) error {
		for _, m := range before.Machines {
			i := slices.IndexFunc(p.Machines, func(now machine) bool { return now.Name == m.Name })
			if i < 0 {
				return fmt.Errorf("machine %s must not change, and is gone", m.Name)
			}
			if phase := p.Machines[i].Phase; phase != v1alpha1.MachineRunning {
				return fmt.Errorf("machine %s must not change, and is %q", m.Name, phase)
			}
		}
		n := len(before.Machines)
		if len(p.Machines) != n || p.readyNodes() != n || len(p.VMs) != n {
			return fmt.Errorf("expected %d machines, Ready Nodes and VMs as before, got %d, %d and %d",
				n, len(p.Machines), p.readyNodes(), len(p.VMs))
		}
		return nil
	}
	return g
}
