package text

import (
	"fmt"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// Rollout renders the state of a rollout as one line, or two when it is stalled.
func Rollout(r view.Rollout, s Style) string {
	level := view.Level("")
	if r.Failed {
		level = view.Error
	}
	text := s.paint(oneLine(r.Text), level) + "\n"
	if r.Stalled != "" && !r.Done {
		line := "stalled"
		if age := s.age(r.Since); age != "" {
			line += " for " + age
		}
		text += "  " + s.paint(s.wrapped(line+": "+r.Stalled, 2), view.Warning) + "\n"
	}
	return text
}

// History renders the revisions of a MachineDeployment.
func History(h view.History, s Style) string {
	if len(h.Revisions) == 0 {
		return fmt.Sprintf("machinedeployment %s has no revisions yet\n", h.Name)
	}
	var rows [][]cell
	for _, r := range h.Revisions {
		current := ""
		if r.Current {
			current = "current"
		}
		rows = append(rows, row(fmt.Sprint(r.Revision), current, r.Set, fmt.Sprintf("%d/%d", r.Available, r.Desired), r.Class, s.age(r.Created),
			strings.TrimSpace(r.Cause)))
	}
	return s.table([]string{"REVISION", "", "MACHINESET", "READY", "CLASS", "AGE", "CHANGE-CAUSE"}, records(rows))
}
