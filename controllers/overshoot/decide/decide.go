package decide

import (
	"fmt"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// Limits are the settings.
type Limits struct {
	// Up is how many machines more than ordered are too many. 0 has the same effect as 1.
	Up int
	// Down is by how many machines the number has to be lower for a freeze to end. A number that is
	// not more than ordered ends it always.
	Down int
}

// high returns the lowest number that is too high.
func (l Limits) high(ordered int) int { return ordered + max(l.Up, 1) }

// mostReleased returns how many machines that a set has released may exist without a freeze. Users
// release some to inspect them.
func (l Limits) mostReleased() int { return max(l.Up, 1) }

// low returns the highest number at which a freeze ends.
func (l Limits) low(ordered int) int {
	return max(ordered, min(ordered+l.Up-l.Down, l.high(ordered)-1))
}

// Verdict is the change of a MachineSet.
type Verdict struct {
	Set *v1alpha1.MachineSet
	// Freeze reports whether the set must be frozen; otherwise its freeze must end.
	Freeze bool
	// Why has the numbers, as a sentence.
	Why string
}

// Decide returns the MachineSets to freeze and those whose freeze ends, by name. It is called after
// all machines were added.
func (c *Counter) Decide(l Limits) (verdicts []Verdict) {
	now := c.Count()
	for _, set := range c.sets {
		switch is, frozen := now.sets[set.UID], machinefacts.IsFrozen(set); {
		case frozen && isFrozenForOvershooting(set) && c.isLow(l, now, set):
			verdicts = append(verdicts, Verdict{
				Set: set, Why: fmt.Sprintf("The MachineSet has %d machines for %d replicas%s", is.live, is.replicas, is.alsoReleased()),
			})
		case frozen:
		case c.setOvershoots(l, is, set):
			verdicts = append(verdicts, Verdict{Set: set, Freeze: true, Why: fmt.Sprintf(
				"The MachineSet has %d machines for %d replicas, and has created %d of them while it had at least %d",
				is.live, is.replicas, is.created, l.high(is.replicas))})
		case c.drifts(l, is, set):
			verdicts = append(verdicts, Verdict{Set: set, Freeze: true, Why: fmt.Sprintf(
				"The MachineSet has released %d machines that still exist and whose labels do not match its selector, "+
					"and has created %d in their place",
				is.released, is.created)})
		case c.deploymentOvershoots(l, now, set):
			d := now.deployments[ownerOf(set)]
			verdicts = append(verdicts, Verdict{Set: set, Freeze: true, Why: fmt.Sprintf(
				"The MachineSets of MachineDeployment %s have %d machines, and may have %d; "+
					"this one has created %d of them while there were at least %d",
				c.deployments[ownerOf(set)].Name, d.live, d.most, is.created, l.high(d.most))})
		}
	}
	return verdicts
}

// alsoReleased returns the part of a sentence that reports the machines which the set has released.
func (c setCount) alsoReleased() string {
	if c.released == 0 {
		return ""
	}
	return fmt.Sprintf(" and has released %d that still exist", c.released)
}

// setOvershoots reports whether a set has created machines beyond its replicas since the count
// before. One that was not counted before had no machines then.
func (c *Counter) setOvershoots(l Limits, is setCount, set *v1alpha1.MachineSet) bool {
	before, high := c.before.sets[set.UID], l.high(is.replicas)
	return is.isSizedAs(before) && before.live >= high && is.live >= high && is.created > 0
}

// drifts reports whether a set has released another machine, and has created one in its place,
// while more than some that it has released exist. The release may have been seen by the count
// before.
func (c *Counter) drifts(l Limits, is setCount, set *v1alpha1.MachineSet) bool {
	before := c.before.sets[set.UID]
	return is.isSizedAs(before) && is.created > 0 && is.released > l.mostReleased() && (is.released > before.released || before.drifting)
}

// deploymentOvershoots reports whether a set was enlarged and has created machines since the count
// before, while all sets of its MachineDeployment had too many. One that was not counted, now or
// before, has no machines.
func (c *Counter) deploymentOvershoots(l Limits, now Count, set *v1alpha1.MachineSet) bool {
	uid := ownerOf(set)
	is, before := now.deployments[uid], c.before.deployments[uid]
	high := l.high(is.most)
	return before.generation == is.generation && before.most == is.most && before.live >= high && is.live >= high &&
		now.sets[set.UID].created > 0 && now.sets[set.UID].replicas > c.before.sets[set.UID].replicas
}

// isLow reports whether neither a set nor its MachineDeployment has too many machines any more, nor
// the set has released too many. A MachineDeployment that was not counted has none.
func (c *Counter) isLow(l Limits, now Count, set *v1alpha1.MachineSet) bool {
	is, d := now.sets[set.UID], now.deployments[ownerOf(set)]
	return is.live <= l.low(is.replicas) && d.live <= l.low(d.most) && is.released <= l.mostReleased()
}

// isFrozenForOvershooting reports whether a frozen set was frozen for its number of machines, by
// the fleet or by Machine Controller Manager, which recorded that in the condition.
func isFrozenForOvershooting(set *v1alpha1.MachineSet) bool {
	if _, noted := set.Annotations[v1alpha1.AnnotationOvershooting]; noted {
		return true
	}
	is := machinefacts.MachineSetCondition(&set.Status, v1alpha1.MachineSetFrozen)
	return is != nil && is.Reason == v1alpha1.ReasonOverShootingReplicaCount
}
