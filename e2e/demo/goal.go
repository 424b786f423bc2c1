package main

import "fmt"

// progress is how far a wish has come true.
type progress struct {
	Done, Total int
	// What is done, as in "3 of 7 machines run".
	What string
	// Reached says that nothing is missing, also of what is not counted.
	Reached bool
}

func (p progress) String() string { return fmt.Sprintf("%d of %d %s", p.Done, p.Total, p.What) }

// A goal is what is waited for.
type goal struct {
	// reach says how far it is.
	reach func(picture) progress
	// facts are what of a picture belongs to it.
	facts func(picture) []fact
}

// settled is reached when there is what is wanted and nothing else: as Machines that run, as Nodes that are Ready, and
// as VMs. before is how many machines there were.
func settled(before int) goal {
	return goal{facts: picture.machineFacts, reach: func(p picture) progress {
		wanted, running, ready := p.wanted(), p.running(), p.readyNodes()
		most := max(p.machines(), len(p.Nodes), len(p.VMs))
		least := min(running, ready, len(p.VMs))
		reached := most == wanted && least == wanted && p.fits()
		if wanted < before {
			return progress{Done: max(before-most, 0), Total: before - wanted, What: "machines are gone", Reached: reached}
		}
		return progress{Done: min(running, ready), Total: wanted, What: "machines run", Reached: reached}
	}}
}

// podsRun is reached when all pods run that are wanted.
func podsRun() goal {
	return goal{facts: picture.podFacts, reach: func(p picture) progress {
		reached := p.Pods.Wanted > 0 && p.Pods.Running == p.Pods.Wanted && p.Pods.Others == 0
		return progress{Done: min(p.Pods.Running, p.Pods.Wanted), Total: p.Pods.Wanted, What: "pods run", Reached: reached}
	}}
}

// podsGone is reached when none of so many pods is left.
func podsGone(before int) goal {
	return goal{facts: picture.podFacts, reach: func(p picture) progress {
		left := p.Pods.Running + p.Pods.Others
		return progress{Done: max(before-left, 0), Total: before, What: "pods are gone", Reached: p.Pods == pods{}}
	}}
}
