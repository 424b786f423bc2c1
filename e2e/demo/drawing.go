package main

import (
	"cmp"
	"fmt"
	"html"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// drawing contains what the picture of a run is drawn from: a column for each step, machines above,
// and the holders of all slots below.
type drawing struct {
	steps    []timing
	samples  []sample  // by time
	holdings []holding // by time
}

// sample is how many machines there are at one moment.
type sample struct {
	at              time.Time
	running, others int
}

// holding begins when a replica is seen to hold a slot; "" when none does.
type holding struct {
	at      time.Time
	slot    int
	replica string
}

func (p picture) sample(at time.Time) sample {
	s := sample{at: at, others: p.machines()}
	for _, d := range p.Deployments {
		s.running += d.Phases[v1alpha1.MachineRunning]
	}
	s.others -= s.running
	return s
}

// Lengths in pixels. A column has cells, each of which shows the state at its end.
const (
	drawingLeft, columnWidth, cells    = 84, 76, 38
	cellWidth                          = columnWidth / cells
	titlesTop, lineHeight, titleLetter = 26, 13, 12 // letters in a line of a title
	machinesTop, machinesBottom        = 90, 186
	slotsTop, slotHeight               = 212, 1
	slotsBottom                        = slotsTop + slots*slotHeight
	drawingHeight                      = slotsBottom + 56

	paperColor, gridColor, textColor, runningColor, othersColor = "#ffffff", "#d9d9d9", "#333333", "#4d7c3a", "#e0b64c"
)

// replicaColors are those of the replicas, in the order of their names, and again for more.
var replicaColors = []string{"#1f5fbf", "#c2570c", "#7a4fa3", "#2a9d8f", "#b83a5e"}

// svg draws it. Each step has a column of the same width, regardless of the time that it took.
func (d drawing) svg() string {
	width := drawingLeft + columnWidth*len(d.steps) + 12
	var b strings.Builder
	draw := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	text := func(x, y int, anchor, content string) {
		draw(`<text x="%d" y="%d" text-anchor="%s" fill="%s">%s</text>`, x, y, anchor, textColor, html.EscapeString(content))
	}
	draw(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11" shape-rendering="crispEdges">`,
		width, drawingHeight)
	draw(`<rect width="%d" height="%d" fill="%s"/>`, width, drawingHeight, paperColor)
	for i, s := range d.steps {
		middle := drawingLeft + i*columnWidth + columnWidth/2
		for line, content := range wrapped(s.Name, titleLetter) {
			text(middle, titlesTop+line*lineHeight, "middle", content)
		}
		text(middle, slotsBottom+16, "middle", seconds(s.Took))
	}
	d.drawMachines(draw, text)
	d.drawSlots(draw, text)
	for i := range len(d.steps) + 1 {
		x := drawingLeft + i*columnWidth
		draw(`<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="%s"/>`, x, x, titlesTop-lineHeight, slotsBottom+20, gridColor)
	}
	draw("</svg>")
	return b.String()
}

// drawMachines draws the machines that run, and the others on top of them.
func (d drawing) drawMachines(draw func(string, ...any), text func(int, int, string, string)) {
	most := 1
	for _, s := range d.samples {
		most = max(most, s.running+s.others)
	}
	y := func(n int) int { return machinesBottom - n*(machinesBottom-machinesTop)/most }
	text(drawingLeft-8, y(most)+4, "end", fmt.Sprint(most))
	text(drawingLeft-8, y(0)+4, "end", "0")
	text(drawingLeft-8, (y(0)+y(most))/2+4, "end", "machines")
	var now sample
	var row []sample
	rest := d.samples
	for _, end := range d.ends() {
		for ; len(rest) > 0 && !rest[0].at.After(end); rest = rest[1:] {
			now = rest[0]
		}
		row = append(row, sample{running: now.running, others: now.others})
	}
	runs(row, func(from, to int, s sample) {
		x, width := drawingLeft+from*cellWidth, (to-from)*cellWidth
		draw(`<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`, x, y(s.running), width, y(0)-y(s.running), runningColor)
		draw(`<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`,
			x, y(s.running+s.others), width, y(s.running)-y(s.running+s.others), othersColor)
	})
}

// drawSlots draws a line for each slot in the colors of its holders. Slots with the same holders
// one after the other are adjacent.
func (d drawing) drawSlots(draw func(string, ...any), text func(int, int, string, string)) {
	rows, rest := make([][]string, slots), d.holdings
	now := make([]string, slots)
	colors := map[string]string{}
	for _, end := range d.ends() {
		for ; len(rest) > 0 && !rest[0].at.After(end); rest = rest[1:] {
			now[rest[0].slot] = rest[0].replica
			colors[rest[0].replica] = ""
		}
		for slot, holder := range now {
			rows[slot] = append(rows[slot], holder)
		}
	}
	delete(colors, "")
	text(drawingLeft-8, (slotsTop+slotsBottom)/2+4, "end", fmt.Sprintf("%d slots", slots))
	legend := drawingLeft
	entry := func(color, content string) {
		draw(`<rect x="%d" y="%d" width="10" height="10" fill="%s" stroke="%s"/>`, legend, slotsBottom+32, color, gridColor)
		text(legend+14, slotsBottom+41, "start", content)
		legend += 26 + 6*len(content)
	}
	entry(runningColor, "machines that run")
	entry(othersColor, "other machines")
	entry(paperColor, "slots without a holder")
	for i, replica := range slices.Sorted(maps.Keys(colors)) {
		colors[replica] = replicaColors[i%len(replicaColors)]
		entry(colors[replica], "slots of "+replica)
	}
	slices.SortFunc(rows, func(a, b []string) int {
		return cmp.Or(slices.Compare(held(a), held(b)), slices.Compare(a, b))
	})
	for first := 0; first < slots; {
		last := first + 1
		for last < slots && slices.Equal(rows[first], rows[last]) {
			last++
		}
		runs(rows[first], func(from, to int, holder string) {
			if holder != "" {
				draw(`<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`, drawingLeft+from*cellWidth, slotsTop+first*slotHeight,
					(to-from)*cellWidth, (last-first)*slotHeight, colors[holder])
			}
		})
		first = last
	}
}

// ends are the times at which the cells end.
func (d drawing) ends() (times []time.Time) {
	for _, s := range d.steps {
		for i := range cells {
			times = append(times, s.Start.Add(s.Took*time.Duration(i+1)/cells))
		}
	}
	return times
}

// held returns the holders of a row, one after the other.
func held(row []string) []string {
	return slices.Compact(slices.DeleteFunc(slices.Clone(row), func(holder string) bool { return holder == "" }))
}

// runs calls draw for each run of equal values.
func runs[T comparable](row []T, draw func(from, to int, value T)) {
	for from := 0; from < len(row); {
		to := from + 1
		for to < len(row) && row[to] == row[from] {
			to++
		}
		draw(from, to, row[from])
		from = to
	}
}

// wrapped splits a text between words into lines of so many letters, if they fit.
func wrapped(text string, width int) []string {
	var all []string
	for word := range strings.FieldsSeq(text) {
		if last := len(all) - 1; last >= 0 && len(all[last])+1+len(word) <= width {
			all[last] += " " + word
		} else {
			all = append(all, word)
		}
	}
	return all
}
