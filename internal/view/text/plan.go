package text

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/plan"
)

// planSteps is how many rows of steps are shown without Wide: the first ones.
const planSteps = 20

// Plans renders what changes would do that are applied at the same moment.
func Plans(w plan.Whole, s Style) string {
	var b strings.Builder
	objects := 0
	for i, p := range w.Plans {
		if i > 0 {
			b.WriteString("\n---\n")
		}
		b.WriteString(planned(p, s))
		objects += 1 + len(p.With)
	}
	if len(w.Plans) > 1 {
		fmt.Fprintf(&b, "\n---\nAll %d objects together:\n", objects)
		if len(w.Zones) > 0 {
			vms := fmt.Sprintf("VMs of these: %d before, %d after, %d at once at most.", w.VMs.Before, w.VMs.After, w.Most)
			b.WriteString(s.wrapped(vms, 0) + "\n")
		}
		b.WriteString(s.planTime(together(w)) + "\n")
		s.planZones(&b, w.Zones)
	}
	s.planNotes(&b, w.Notes)
	return b.String() + s.missing(w.Missing)
}

// together returns a plan that has the time of all.
func together(w plan.Whole) plan.Plan {
	all := plan.Plan{Ends: w.Ends, Time: w.Time, Missing: w.Missing}
	for _, p := range w.Plans {
		if !p.Ends && all.Waits == "" {
			all.Waits = p.Waits + " (" + planName(p) + ")"
		}
		if !p.Time.Known {
			all.Pools = append(all.Pools, p.Pools...)
		}
	}
	return all
}

// planName returns the objects of a plan.
func planName(p plan.Plan) string {
	var names []string
	for _, o := range append([]view.Object{p.Object}, p.With...) {
		names = append(names, o.Kind+" "+strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"))
	}
	return strings.Join(names, ", ")
}

// planned renders a plan, without what could not be read.
func planned(p plan.Plan, s Style) string {
	var b strings.Builder
	what := "is changed"
	switch {
	case p.Creates:
		what = "is created"
	case !p.IsChange():
		what = "has no change"
	}
	if len(p.With) > 0 {
		what = strings.NewReplacer("is", "are", "has", "have").Replace(what)
	}
	fmt.Fprintf(&b, "%s %s. %s.\n", planName(p), what, s.wrapped(p.Summary, 0))
	if m := p.Machines; m.Before+m.After > 0 || len(p.Pools) == 0 {
		b.WriteString(s.wrapped(planVMs(p), 0) + "\n")
	}
	if p.IsChange() || !p.Ends || len(p.Steps) > 0 { // such as of a rollout that is under way
		b.WriteString(s.planTime(p) + "\n")
	}
	s.planChanges(&b, p.Changes)
	s.planPools(&b, p.Pools)
	s.planZones(&b, p.Zones)
	s.planBlocked(&b, p.Blocked)
	if len(p.InForce) > 0 {
		b.WriteString("\nIn force:\n")
		for _, t := range p.InForce {
			line := fmt.Sprintf("%s: %s: %s", named(t.Object, false), t.Reason, t.Message)
			fmt.Fprintf(&b, "  %s\n", s.paint(s.wrapped(line, 2), t.Level))
		}
	}
	s.planSteps(&b, p)
	s.planNotes(&b, p.Notes)
	return b.String()
}

func (s Style) planNotes(b *strings.Builder, notes []string) {
	if len(notes) > 0 {
		b.WriteString("\nNotes:\n")
	}
	for _, note := range notes {
		fmt.Fprintf(b, "  %s\n", s.wrapped(note, 2))
	}
}

// planVMs returns how many VMs there are.
func planVMs(p plan.Plan) string {
	m := p.Machines
	vms := fmt.Sprintf("VMs: %d before, %d after, %d at once at most", p.VMs.Before, p.VMs.After, m.Most)
	if m.Surge > 0 {
		vms += fmt.Sprintf(", which is %d beyond the replicas", m.Surge)
	}
	if p.VMs.Before > 0 {
		vms += fmt.Sprintf("; at least %d are available all the time", m.Least)
	}
	return vms + "."
}

// planTime renders the time of a plan, or what it does not end for.
func (s Style) planTime(p plan.Plan) string {
	var text string
	var level view.Level
	switch took := p.Time.Median.Duration; {
	case !p.Ends:
		text, level = fmt.Sprintf("It does not end: it waits for %s.", p.Waits), view.Warning
	case !p.Time.Known:
		text = "Time: not known, because " + whyNoTime(p) + "."
	case took == 0:
		text = "Time: at once."
	default:
		text = fmt.Sprintf("Time: %s (median), %s (nine in ten)", short(took), short(p.Time.P90.Duration))
		if p.Time.Source != "" { // there is none of minReadySeconds
			text += ", by " + p.Time.Source
		}
		text += "."
	}
	return s.paint(s.wrapped(text, 0), level)
}

// whyNoTime returns why the time is not known, and what to do.
func whyNoTime(p plan.Plan) string {
	misses := func(what string) bool {
		return slices.ContainsFunc(p.Missing, func(m view.Missing) bool { return strings.HasPrefix(m.What, what) })
	}
	const flags = "--create-time and --delete-time"
	switch {
	case len(p.Pools) > 0:
		return "no replica measures how long Nodes take to reboot; set --update-time, and --drain-time"
	case misses("Metrics"):
		return "metrics of replicas could not be read; name their addresses with --endpoints, or set " + flags
	case misses(view.MissingLeases):
		return "without Leases the replicas, which measure it, are not known; set --fleet-namespace and --fleet-name, or " + flags
	}
	return "no replica has reported how long machines take; set " + flags
}

// short returns a duration for people, in seconds or, from an hour on, in minutes.
func short(d time.Duration) string {
	unit, zero := time.Second, "0s"
	if d >= time.Hour {
		unit = time.Minute
	}
	text := d.Round(unit).String()
	if text == zero {
		return text
	}
	text = strings.TrimSuffix(text, "m"+zero) + strings.Repeat("m", min(strings.Count(text, "m"+zero), 1))
	return strings.TrimSuffix(text, "h0m") + strings.Repeat("h", min(strings.Count(text, "h0m"), 1))
}

// effects has what each effect means to machines.
func effects() map[plan.Effect]string {
	return map[plan.Effect]string{
		plan.Replaces:       "replaces machines: each gets a new VM",
		plan.UpdatesInPlace: "updates machines in place: each keeps its VM",
		plan.Writes:         "is written to the machines that exist",
		plan.Resizes:        "changes the number of machines",
		plan.Steers:         "changes how machines are worked on",
		plan.NewMachines:    "holds for machines that are created from now on",
		plan.Configures:     "is applied to the Nodes of pools",
		plan.NoEffect:       "has no effect on machines",
	}
}

func (s Style) planChanges(b *strings.Builder, all []plan.FieldChange) {
	var rows [][]cell
	for _, c := range all {
		cells := row(strings.TrimPrefix(c.Of+": "+c.Path, ": "), orNone(c.Before), orNone(c.After), effects()[c.Effect])
		if c.Effect == plan.Replaces {
			cells[3].level = view.Warning
		}
		rows = append(rows, cells)
	}
	if len(rows) > 0 {
		b.WriteString("\n" + s.table([]string{"FIELD", "BEFORE", "AFTER", "EFFECT"}, records(rows)))
	}
}

// planPools renders the pools whose configuration changes.
func (s Style) planPools(b *strings.Builder, all []plan.Pool) {
	var rows [][]cell
	for _, p := range all {
		what, level := "nothing changes", view.Level("")
		switch {
		case p.Problem != "":
			what, level = "is not rendered, or not applied: "+p.Problem, view.Error
		case p.Before == p.After:
		case p.By != "":
			what = "by the strategy of MachineDeployment " + p.By
		case p.Reboot:
			what, level = "each is drained and reboots", view.Warning
		case len(p.Restart) > 0:
			what = "each restarts " + strings.Join(p.Restart, ", ")
		case len(p.Reload) > 0:
			what = "each reloads " + strings.Join(p.Reload, ", ")
		default:
			what = "without a restart"
		}
		rows = append(rows, []cell{plain(p.Name), plain(fmt.Sprint(p.Nodes)), plain(orNone(firstOf(p.Changes, 2))), {what, level}})
	}
	if len(rows) > 0 {
		b.WriteString("\n" + s.table([]string{"POOL", "NODES", "CHANGES", "HOW"}, records(rows)))
	}
}

func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func (s Style) planZones(b *strings.Builder, all []plan.Zone) {
	var rows [][]cell
	for _, z := range all {
		name := z.Name
		if name == "" {
			name = "not known"
		}
		rows = append(rows, row(name, fmt.Sprint(z.Before), fmt.Sprint(z.After), fmt.Sprint(z.Most)))
	}
	if len(rows) > 0 {
		b.WriteString("\n" + s.table([]string{"ZONE", "VMS BEFORE", "AFTER", "AT ONCE"}, records(rows)))
	}
}

func (s Style) planBlocked(b *strings.Builder, all []plan.BlockedDrain) {
	var rows [][]cell
	for _, d := range all {
		for _, pod := range d.Pods {
			level, ends := view.Warning, "when the budget allows it, or after "+short(d.Forced.Duration)
			if pod.Stays {
				level, ends = view.Error, "after "+short(d.Forced.Duration)+", by force"
			}
			why := pod.Why
			rows = append(rows, []cell{plain(d.Node), {pod.Pod, level}, plain(ends), plain(why)})
		}
	}
	if len(rows) > 0 {
		b.WriteString("\nBlocked drains, as things are:\n" + s.table([]string{"NODE", "POD", "LEAVES", "WHY"}, records(rows)))
	}
}

// planRow is a row of steps: equal ones at the same moment.
type planRow struct {
	first plan.Step
	names []string
}

// planSteps renders steps. That machines have joined and are gone is shown with Wide only. Where no
// times are known, moments have numbers.
func (s Style) planSteps(b *strings.Builder, p plan.Plan) {
	var folded []planRow
	for _, step := range p.Steps {
		if !s.Wide && (step.Do == plan.Joined || step.Do == plan.Gone) {
			continue
		}
		i := slices.IndexFunc(folded, func(r planRow) bool {
			return r.first.After == step.After && r.first.Do == step.Do && r.first.Set == step.Set && r.first.Why == step.Why
		})
		if i < 0 {
			i = len(folded)
			folded = append(folded, planRow{first: step})
		}
		folded[i].names = append(folded[i].names, step.Name)
	}
	if len(folded) == 0 {
		return
	}
	heading := "\nSteps:\n"
	if len(folded) > planSteps && !s.Wide {
		heading = fmt.Sprintf("\nSteps (the first %d of %d; -o wide shows all):\n", planSteps, len(folded))
		folded = folded[:planSteps]
	}
	var rows [][]cell
	moment, last := 0, time.Duration(-1)
	for _, r := range folded {
		if after := r.first.After.Duration; after != last {
			moment, last = moment+1, after
		}
		when := fmt.Sprint(moment)
		if p.Time.Known {
			when = "+" + short(last)
		}
		rows = append(rows, row(when, s.planStep(r), r.first.Why))
	}
	b.WriteString(heading + s.table([]string{"AFTER", "STEP", "WHY"}, records(rows)))
}

// planStep returns what a row of steps does.
func (s Style) planStep(r planRow) string {
	most := 2
	if s.Wide {
		most = len(r.names)
	}
	names, machines := firstOf(r.names, most), count(len(r.names), "machine")
	in := ""
	if r.first.Zone != "" {
		in = " in " + r.first.Zone
	}
	switch r.first.Do {
	case plan.CreateSet:
		return "create MachineSet " + names
	case plan.DeleteSet:
		return "delete MachineSet " + names
	case plan.CreateMachine:
		return "create " + machines + " of " + r.first.Set + in
	case plan.Joined:
		if r.first.IsNew {
			return machines + " of " + r.first.Set + " joined" + in
		}
		return names + " joined" + in
	case plan.DeleteMachine:
		if r.first.IsNew {
			return "delete " + machines + " of " + r.first.Set
		}
		return "delete " + names
	case plan.Gone:
		return names + " gone"
	case plan.UpdateMachine:
		return "write " + names
	case plan.DrainNode:
		if n := len(r.first.Pods); n > 0 {
			return "drain Node " + names + " of " + count(n, "pod")
		}
		return "drain Node " + names
	case plan.UpdateNode:
		return "Node " + names + " is updated"
	case plan.RebootNode:
		return "Node " + names + " has rebooted"
	case plan.ApplyNode:
		return "Node " + names + " has applied it"
	case plan.Release:
		return "release " + names
	}
	return string(r.first.Do) + " " + names
}
