package text

import (
	"fmt"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// Tree renders a tree.
func Tree(t view.Tree, s Style) string {
	if len(t.Roots) == 0 {
		return "There are no MachineDeployments, and no MachineSets or Machines without a controller.\n" + s.missing(t.Missing)
	}
	namespaces := map[string]bool{}
	for _, root := range t.Roots {
		namespaces[root.Namespace] = true
	}
	var rows []record
	for _, root := range t.Roots {
		rows = s.branch(rows, root, "", "", len(namespaces) > 1)
	}
	return s.table([]string{"NAME", "READY", "STATE", "SINCE", "MESSAGE"}, rows) + s.missing(t.Missing)
}

// branch adds the rows of a branch. first is before its own row, rest before those below it.
func (s Style) branch(rows []record, b view.Branch, first, rest string, namespaces bool) []record {
	name, message := named(b.Object, namespaces && first == ""), b.Message
	if n := len(b.Names); n > 0 {
		name = fmt.Sprintf("%d %ss", n, b.Kind)
		message = firstOf(b.Names, 3)
		if b.Message != "" {
			message += ": " + b.Message
		}
	}
	bar := rest + "    "
	if len(b.Children) > 0 {
		bar = rest + "│   "
	}
	rows = append(rows, record{[]cell{plain(first + name), plain(b.Ready), {b.State, b.Level}, plain(s.age(b.Since)), plain(message)}, bar})
	if s.Wide {
		rows = s.troubles(rows, b, rest)
	}
	for i, child := range b.Children {
		mark, below := "├─ ", "│  "
		if i == len(b.Children)-1 {
			mark, below = "└─ ", "   "
		}
		rows = s.branch(rows, child, rest+mark, rest+below, namespaces)
	}
	return rows
}

// troubles adds a row for each trouble but the one that the branch itself shows.
func (s Style) troubles(rows []record, b view.Branch, rest string) []record {
	for _, t := range b.Troubles {
		if t.Message == b.Message {
			continue
		}
		bar := rest
		if len(b.Children) > 0 {
			bar += "│"
		}
		rows = append(rows, record{[]cell{plain(bar), {}, {t.Reason, t.Level}, plain(s.age(t.Since)), plain(t.Message)}, bar})
	}
	return rows
}

// Status renders a status.
func Status(v view.Status, s Style) string {
	var b strings.Builder
	counts := make([]string, 0, len(v.Phases))
	for _, p := range v.Phases {
		counts = append(counts, fmt.Sprintf("%d %s", p.Count, p.State))
	}
	fmt.Fprintf(&b, "%s, %s", count(v.Deployments, "MachineDeployment"), count(v.Machines, "Machine"))
	if len(counts) > 0 {
		fmt.Fprintf(&b, " (%s)", strings.Join(counts, ", "))
	}
	if v.RollingOut > 0 {
		fmt.Fprintf(&b, ", %s under way", count(v.RollingOut, "rollout"))
	}
	if v.Slots > 0 {
		fmt.Fprintf(&b, "; %s, %d of %d slots held", count(v.Replicas, "replica"), v.HeldSlots, v.Slots)
	}
	b.WriteString("\n")
	if len(v.Troubles) == 0 {
		b.WriteString("Nothing is wrong, held or stalled.\n")
		return b.String() + s.missing(v.Missing)
	}
	b.WriteString("\n")
	namespaces := map[string]bool{}
	for _, t := range v.Troubles {
		if t.Namespace != "" {
			namespaces[t.Namespace] = true
		}
	}
	rows := make([][]cell, 0, len(v.Troubles))
	for _, t := range v.Troubles {
		object := named(t.Object, len(namespaces) > 1)
		rows = append(rows, []cell{{string(t.Level), t.Level}, plain(object), {t.Reason, t.Level}, plain(s.age(t.Since)), plain(t.Message)})
	}
	return b.String() + s.table([]string{"LEVEL", "OBJECT", "REASON", "SINCE", "MESSAGE"}, records(rows)) + s.missing(v.Missing)
}

// count returns a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
