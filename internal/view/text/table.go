package text

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// Style is how text is rendered.
type Style struct {
	// Width is the number of characters of a line; 0 cuts nothing.
	Width int
	// Color marks levels by colors.
	Color bool
	// Wide has the additional columns.
	Wide bool
	// Now is the time that ages are computed for.
	Now time.Time
}

// cell is the content of a column, in the color of a level.
type cell struct {
	text  string
	level view.Level
}

func plain(text string) cell { return cell{text: text} }

func row(texts ...string) []cell {
	cells := make([]cell, len(texts))
	for i, text := range texts {
		cells[i] = plain(text)
	}
	return cells
}

// record is a row of a table.
type record struct {
	cells []cell
	// bar is before the last cell where that has its own line.
	bar string
}

// records returns rows whose last cells, on their own lines, are indented.
func records(rows [][]cell) []record {
	all := make([]record, len(rows))
	for i, cells := range rows {
		all[i] = record{cells, "    "}
	}
	return all
}

const (
	// gap is between two columns.
	gap = "   "
	// least is the width that the last column has at least. Where there is less, it has its own lines.
	least = 40
)

// table renders rows below a heading. The last column is cut to the width, or on separate lines
// where too little of the width is left for it.
func (s Style) table(heading []string, rows []record) string {
	widths := make([]int, len(heading))
	all := append([]record{{cells: row(heading...)}}, rows...)
	for _, r := range all {
		for i := range r.cells {
			r.cells[i].text = oneLine(r.cells[i].text)
			widths[i] = max(widths[i], utf8.RuneCountInString(r.cells[i].text))
		}
	}
	left, end := 0, len(widths)-1
	for _, width := range widths[:end] {
		left += width + len(gap)
	}
	below := s.Width > 0 && s.Width-left < min(least, widths[end])
	var b strings.Builder
	for i, r := range all {
		var line strings.Builder
		for i, c := range r.cells[:end] {
			line.WriteString(s.paint(c.text, c.level) + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text)) + gap)
		}
		last := r.cells[end]
		if !below {
			line.WriteString(s.paint(s.cut(last.text, left), last.level))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		if below && i > 0 && last.text != "" {
			b.WriteString(r.bar + s.paint(s.cut(last.text, utf8.RuneCountInString(r.bar)), last.level) + "\n")
		}
	}
	return b.String()
}

// paint returns a text in the color of a level.
func (s Style) paint(text string, level view.Level) string {
	code := map[view.Level]string{view.Error: "31", view.Warning: "33", view.Note: "36"}[level]
	if !s.Color || code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// cut returns a text that ends within the width, after so many characters.
func (s Style) cut(text string, after int) string {
	most := max(s.Width-after, 1)
	if s.Width == 0 || utf8.RuneCountInString(text) <= most {
		return text
	}
	return strings.TrimRight(string([]rune(text)[:most-1]), " ") + "…"
}

// oneLine returns a text without line ends and control characters: messages have texts of clouds
// and of users.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsControl(r):
			return -1
		}
		return r
	}, text)
}

// wrapped returns a paragraph in lines of the width, each after a prefix of so many spaces but the
// first.
func (s Style) wrapped(text string, indent int) string {
	text = oneLine(text)
	if s.Width == 0 || utf8.RuneCountInString(text)+indent <= s.Width {
		return text
	}
	var b strings.Builder
	at := indent
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n > s.Width && at > indent:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		default:
			b.WriteString(" ")
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}

// age returns how long ago a time was; "" for none.
func (s Style) age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(s.Now.Sub(t), 0))
}

// in returns in how long a time is, for "in 5m" and "3m ago".
func (s Style) in(t time.Time) string {
	if d := t.Sub(s.Now); d >= 0 {
		return "in " + duration.HumanDuration(d)
	}
	return duration.HumanDuration(s.Now.Sub(t)) + " ago"
}

// missing renders what could not be read.
func (s Style) missing(all []view.Missing) string {
	var b strings.Builder
	for _, m := range all {
		text := fmt.Sprintf("%s are not shown: %s", m.What, m.Why)
		if m.Right != "" {
			text += "; it needs the right to " + m.Right
		}
		b.WriteString(s.paint(s.wrapped(text, len("  ")), view.Warning) + "\n")
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n" + b.String()
}

// named returns an object as people name it: its kind and its name, with the namespace if there are
// several.
func named(o view.Object, namespaces bool) string {
	name := o.Name
	if namespaces && o.Namespace != "" {
		name = o.Namespace + "/" + name
	}
	return o.Kind + " " + name
}

// firstOf returns the first names of a list, and how many more there are.
func firstOf(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
