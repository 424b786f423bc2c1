package text

import (
	"fmt"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// Drain renders the drain of a Node.
func Drain(d *view.Drain, s Style) string {
	var b strings.Builder
	what := "Node " + d.Node
	if d.Machine.Name != "" {
		what += fmt.Sprintf(", of Machine %s/%s,", d.Machine.Namespace, d.Machine.Name)
	}
	if d.Why == "" {
		what += fmt.Sprintf(" is not being drained. A drain would be forced after %s, and a pod that cannot be evicted deleted without grace "+
			"after %s.", d.Timeout, d.EvictTime)
	} else {
		what += fmt.Sprintf(" has been draining for %s, because %s. The drain is forced at %s (%s) at the latest, and a pod that cannot be "+
			"evicted is deleted without grace after %s.", s.age(d.Since), d.Why, d.Forced.UTC().Format(time.RFC3339), s.in(d.Forced), d.EvictTime)
	}
	b.WriteString(s.wrapped(what, 0) + "\n")
	if d.Report != "" {
		b.WriteString(s.wrapped("The fleet reports: "+d.Report, 2) + "\n")
	}
	blocked, free, ending, stays := d.Count(view.PodBlocked), d.Count(view.PodFree), d.Count(view.PodEnding), d.Count(view.PodStays)
	fmt.Fprintf(&b, "%s: %d blocked, %d ending, %d evictable, %d that stay\n", count(len(d.Pods), "pod"), blocked, ending, free, stays)
	var rows [][]cell
	for _, p := range d.Pods {
		if p.State == view.PodStays && !s.Wide {
			continue
		}
		level := map[view.PodState]view.Level{view.PodBlocked: view.Warning, view.PodEnding: view.Note}[p.State]
		if p.Stuck {
			level = view.Error
		}
		why := p.Why
		if why == "" && len(p.Budgets) > 0 {
			why = "allowed by " + firstOf(p.Budgets, 2)
		}
		rows = append(rows, []cell{plain(p.Namespace + "/" + p.Name), {string(p.State), level}, plain(why)})
	}
	if len(rows) > 0 {
		b.WriteString("\n" + s.table([]string{"POD", "STATE", "WHY"}, records(rows)))
	}
	rows = nil
	for _, p := range d.Budgets {
		level := view.Level("")
		if p.Allowed == 0 {
			level = view.Warning
		}
		cells := row(p.Name, fmt.Sprint(p.Allowed), fmt.Sprint(p.Healthy), fmt.Sprint(p.Desired), fmt.Sprint(p.Expected))
		cells[1].level = level
		rows = append(rows, cells)
	}
	if len(rows) > 0 {
		b.WriteString("\n" + s.table([]string{"PODDISRUPTIONBUDGET", "ALLOWED", "HEALTHY", "DESIRED", "EXPECTED"}, records(rows)))
	}
	return b.String() + s.missing(d.Missing)
}
