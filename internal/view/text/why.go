package text

import (
	"fmt"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// decisions is how many decisions are shown without Wide: the last ones.
const decisions = 12

// Why renders what a machine waits for, and how it got there.
func Why(y view.Why, s Style) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s/%s: %s", y.Kind, y.Namespace, y.Name, y.State)
	if !y.Since.IsZero() {
		fmt.Fprintf(&b, " for %s", s.age(y.Since))
	}
	b.WriteString("\n")
	for _, line := range [][2]string{
		{"Created", s.moment(y.Created)}, {"Node", y.Node}, {"VM", y.ProviderID}, {"Class", y.Class}, {"Owner", owner(y.Owner, s)},
	} {
		if line[1] != "" {
			fmt.Fprintf(&b, "%-10s %s\n", line[0]+":", s.wrapped(line[1], 11))
		}
	}
	s.waits(&b, y)
	if len(y.Holds) > 0 {
		b.WriteString("\nHeld by:\n")
		for _, t := range y.Holds {
			fmt.Fprintf(&b, "  %s\n", s.paint(s.wrapped(fmt.Sprintf("%s: %s: %s", named(t.Object, false), t.Reason, t.Message), 4), t.Level))
		}
	}
	s.decisions(&b, y.Decisions)
	return b.String() + s.missing(y.Missing)
}

func (s Style) waits(b *strings.Builder, y view.Why) {
	switch {
	case y.Gone:
		b.WriteString("\nIt does not exist any more.\n")
		return
	case len(y.Waits) == 0:
		b.WriteString("\nIt waits for nothing.\n")
		return
	}
	b.WriteString("\nWaits for:\n")
	for _, w := range y.Waits {
		text := w.For
		if !w.Until.IsZero() {
			text += fmt.Sprintf(", until %s (%s); then %s", w.Until.UTC().Format(time.RFC3339), s.in(w.Until), w.Then)
		}
		fmt.Fprintf(b, "  %s\n", s.wrapped(text, 4))
	}
}

func (s Style) decisions(b *strings.Builder, all []view.Decision) {
	if len(all) == 0 {
		return
	}
	fmt.Fprint(b, "\nDecisions")
	if n := len(all) - decisions; n > 0 && !s.Wide {
		fmt.Fprintf(b, " (the last %d of %d; -o wide shows all)", decisions, len(all))
		all = all[n:]
	}
	b.WriteString(":\n")
	for _, d := range all {
		by := string(d.Source)
		if d.By != "" {
			by += ", " + d.By
		}
		if d.Count > 1 {
			by += fmt.Sprintf(", %d times", d.Count)
		}
		level := view.Level("")
		if d.Warning {
			level = view.Warning
		}
		fmt.Fprintf(b, "  %s %5s ago  %s (%s)\n", d.Time.UTC().Format(time.RFC3339), s.age(d.Time), s.paint(oneLine(d.Reason), level), by)
		if d.Text != "" {
			fmt.Fprintf(b, "    %s\n", s.wrapped(d.Text, 4))
		}
	}
}

// moment returns a time and how long ago it was; "" for none.
func (s Style) moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s)", t.UTC().Format(time.RFC3339), s.in(t))
}

// owner returns which replica reconciles an object.
func owner(o view.Owner, s Style) string {
	if o.Root.Name == "" {
		return ""
	}
	text := named(o.Root, false)
	if o.Set != "" && o.Set != o.Root.Name {
		text += ", MachineSet " + o.Set
	}
	switch {
	case o.Slot == nil:
		return text + "; no slot"
	case o.State == "":
		return text + fmt.Sprintf("; slot %d, whose holder is not known", *o.Slot)
	case o.Replica == "":
		return text + fmt.Sprintf("; slot %d has no holder (%s)", *o.Slot, o.State)
	}
	text += fmt.Sprintf("; replica %s, slot %d, epoch %d", o.Replica, *o.Slot, o.Epoch)
	if age := s.age(o.Since); age != "" {
		text += ", for " + age
	}
	if o.Assigned != "" {
		text += ", moving to " + o.Assigned
	}
	return text
}

// Owners renders which replica reconciles which objects.
func Owners(v view.Owners, s Style) string {
	namespaces := map[string]bool{}
	for _, o := range v.Owners {
		namespaces[o.Root.Namespace] = true
	}
	var rows [][]cell
	for _, o := range v.Owners {
		slot, epoch := "none", ""
		if o.Slot != nil {
			slot = fmt.Sprint(*o.Slot)
		}
		if o.Epoch > 0 {
			epoch = fmt.Sprint(o.Epoch)
		}
		level := view.Error
		switch o.State {
		case view.Held, view.Moving:
			level = ""
		case view.Silent, view.Quarantined, view.Unowned:
		}
		state := string(o.State)
		if o.Assigned != "" {
			state += " to " + o.Assigned
		}
		cells := row(named(o.Root, len(namespaces) > 1), slot, o.Replica, o.Session, epoch, s.age(o.Since), state)
		cells[1].level, cells[6].level = level, level
		rows = append(rows, cells)
	}
	if len(rows) == 0 {
		return "There are no MachineDeployments, and no MachineSets or Machines without a controller.\n" + s.missing(v.Missing)
	}
	return s.table([]string{"OBJECT", "SLOT", "REPLICA", "SESSION", "EPOCH", "SINCE", "STATE"}, records(rows)) + s.missing(v.Missing)
}
