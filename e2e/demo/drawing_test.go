package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Every second slot moves from fleet-0 to fleet-1 in the middle of the second step. Machines come
// up in the first one.
func TestDrawing(t *testing.T) {
	start := time.Now()
	d := drawing{
		steps: []timing{
			{Name: "Create machines", Start: start, Took: time.Second}, {Name: "Add <one>", Start: start.Add(time.Second), Took: 2 * time.Second},
		},
		samples: []sample{
			{at: start, others: 4}, {at: start.Add(500 * time.Millisecond), running: 3, others: 1}, {at: start.Add(time.Second), running: 4},
		},
	}
	for slot := range slots {
		d.holdings = append(d.holdings, holding{at: start, slot: slot, replica: "fleet-0"})
	}
	for slot := 1; slot < slots; slot += 2 {
		d.holdings = append(d.holdings, holding{at: start.Add(2 * time.Second), slot: slot, replica: "fleet-1"})
	}
	picture := d.svg()
	var drawn []string // without texts, lines, the paper and the legend
	for line := range strings.Lines(picture) {
		if strings.HasPrefix(line, `<rect x=`) && !strings.Contains(line, "stroke") && !strings.Contains(line, ` height="0"`) {
			drawn = append(drawn, strings.TrimSuffix(strings.TrimPrefix(line, "<rect "), "/>\n"))
		}
	}
	want := []string{
		`x="84" y="90" width="36" height="96" fill="#e0b64c"`,
		`x="120" y="114" width="38" height="72" fill="#4d7c3a"`,
		`x="120" y="90" width="38" height="24" fill="#e0b64c"`,
		`x="158" y="90" width="78" height="96" fill="#4d7c3a"`,
		`x="84" y="212" width="152" height="128" fill="#1f5fbf"`,
		`x="84" y="340" width="112" height="128" fill="#1f5fbf"`,
		`x="196" y="340" width="40" height="128" fill="#c2570c"`,
	}
	if diff := cmp.Diff(want, drawn); diff != "" {
		t.Errorf("drawn (-want +got):\n%s", diff)
	}
	for _, text := range []string{">Create<", ">machines<", ">Add &lt;one&gt;<", ">1.0 s<", ">2.0 s<", ">slots of fleet-1<"} {
		if !strings.Contains(picture, text) {
			t.Errorf("want the text %q", text)
		}
	}
}

// A late answer of a watch does not make a slot change twice, and a slot that is released is shown
// without a holder.
func TestHoldings(t *testing.T) {
	start := time.Now()
	j := newJournal()
	for i, holder := range []string{session0, session0, "", session1, session1} {
		j.see(lease("slot-007", holder, ""), start.Add(time.Duration(i)*time.Second))
	}
	var got []string
	for _, h := range j.held {
		got = append(got, h.at.Sub(start).String()+" "+h.replica)
	}
	if want := []string{"0s fleet-0", "2s ", "3s fleet-1"}; !slices.Equal(got, want) {
		t.Errorf("holdings %q, want %q", got, want)
	}
}
