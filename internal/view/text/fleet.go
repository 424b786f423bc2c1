package text

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// Slots renders replicas with their slots, and slots that are not just held; with Wide all.
func Slots(f view.Fleet, s Style) string {
	var b strings.Builder
	var rows [][]cell
	for _, r := range f.Replicas {
		state, level := stateOf(r)
		rows = append(rows, []cell{
			plain(r.Name), plain(r.Session), plain(fmt.Sprint(r.Slots)), plain(fmt.Sprint(r.Weight)),
			plain(fmt.Sprint(r.Capacity)),
			{state, level},
		})
	}
	b.WriteString(s.table([]string{"REPLICA", "SESSION", "SLOTS", "WEIGHT", "CAPACITY", "STATE"}, records(rows)))
	counts := map[view.SlotState]int{}
	rows = nil
	for _, slot := range f.Slots {
		counts[slot.State]++
		if slot.State != view.Held || s.Wide {
			rows = append(rows, slotRow(slot, s))
		}
	}
	fmt.Fprintf(&b, "\n%d of %d slots are held by sessions that live", counts[view.Held]+counts[view.Moving], len(f.Slots))
	if n := counts[view.Moving]; n > 0 {
		fmt.Fprintf(&b, ", %d of them moving", n)
	}
	if f.ShardBy != "" {
		fmt.Fprintf(&b, "; slots are by %s", f.ShardBy)
	}
	b.WriteString("\n")
	if f.Hold != "" {
		b.WriteString(s.paint("Deletions are held in all namespaces: "+oneLine(f.Hold), view.Warning) + "\n")
	}
	if len(rows) > 0 {
		b.WriteString("\n" + s.table([]string{"SLOT", "STATE", "REPLICA", "EPOCH", "SINCE", "ASSIGNED", "WEIGHT"}, records(rows)))
	}
	return b.String()
}

// Slot renders slots that were asked for.
func Slot(slots []view.Slot, s Style) string {
	var rows [][]cell
	for _, slot := range slots {
		rows = append(rows, slotRow(slot, s))
	}
	return s.table([]string{"SLOT", "STATE", "REPLICA", "EPOCH", "SINCE", "ASSIGNED", "WEIGHT"}, records(rows))
}

func slotRow(slot view.Slot, s Style) []cell {
	level := view.Level("")
	switch slot.State {
	case view.Unowned, view.Silent:
		level = view.Error
	case view.Quarantined:
		level = view.Warning
	case view.Moving:
		level = view.Note
	case view.Held:
	}
	cells := row(fmt.Sprint(slot.Number), string(slot.State), slot.Replica, fmt.Sprint(slot.Epoch), s.age(slot.Since), slot.Assigned,
		fmt.Sprint(slot.Weight))
	cells[1].level = level
	return cells
}

// stateOf returns the state of a replica in a few words.
func stateOf(r view.Replica) (state string, level view.Level) {
	switch {
	case r.Session == "":
		return "gone", view.Note
	case !r.Lives:
		return fmt.Sprintf("silent for %s", r.Silent.Duration), view.Error
	case r.Unfit != "":
		return "unfit: " + r.Unfit, view.Warning
	case r.Leaving:
		return "leaving", view.Note
	case r.Leads:
		return "leads", ""
	}
	return "fit", ""
}

// Top renders the load of replicas.
func Top(t view.Top, s Style) string {
	heading := []string{"REPLICA", "SLOTS", "MACHINES", "CORES", "MEMORY", "IN-FLIGHT", "QUEUED", "OLDEST", "STATE"}
	var rows [][]cell
	for _, r := range t.Replicas {
		state, level := stateOf(r.Replica)
		cells := row(r.Name, fmt.Sprint(r.Slots), fmt.Sprint(r.Machines), "?", "?", "?", "?", "?", state)
		cells[8].level = level
		if m := r.Metrics; m != nil {
			cells[3].text = fmt.Sprintf("%.2f", m.Cores)
			cells[4].text = resource.NewQuantity(int64(m.Memory)>>20<<20, resource.BinarySI).String()
			cells[5].text, cells[6].text, cells[7].text = fmt.Sprint(m.InFlight), fmt.Sprint(m.Waiting), fmt.Sprintf("%.0fs", m.Oldest)
		}
		rows = append(rows, cells)
	}
	return s.table(heading, records(rows)) + s.missing(t.Missing)
}

// Versions renders the versions of a client and of replicas.
func Versions(v view.Versions, s Style) string {
	rows := [][]cell{row(v.Client.Name, v.Client.Version, v.Client.Commit, "")}
	for _, r := range v.Replicas {
		note := plain("")
		if r.Differs {
			note = cell{"differs from the client", view.Warning}
		}
		rows = append(rows, []cell{plain(r.Name), plain(r.Version), plain(r.Commit), note})
	}
	return s.table([]string{"PROGRAM", "VERSION", "COMMIT", ""}, records(rows)) + s.missing(v.Missing)
}

// Targets renders target clusters.
func Targets(v view.Targets, s Style) string {
	var rows [][]cell
	for _, t := range v.Targets {
		name, reachable, nodes := t.Namespace, "not asked", "?"
		if name == "" {
			name = "(all)"
		}
		if t.Reachable != nil {
			reachable = map[bool]string{true: "yes", false: "no"}[*t.Reachable]
		}
		if t.Nodes != nil {
			nodes = fmt.Sprintf("%d/%d", *t.Ready, *t.Nodes)
		}
		expires := t.Credentials
		if !t.Expires.IsZero() {
			expires += ", expires " + s.in(t.Expires)
		}
		cells := row(name, t.Server, reachable, fmt.Sprint(t.Machines), nodes, expires, t.Why)
		cells[2].level, cells[6].level = t.Level, t.Level
		rows = append(rows, cells)
	}
	heading := []string{"NAMESPACE", "SERVER", "REACHABLE", "MACHINES", "NODES", "CREDENTIALS", "MESSAGE"}
	return s.table(heading, records(rows)) + s.missing(v.Missing)
}
