package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const valid = `
- file: a
  title: a
  rows:
  - title: r
    panels:
    - {title: p, shows: s, queries: [{expr: 'up{$fleet}'}]}
`

func TestReadReportsWhatIsWrong(t *testing.T) {
	if _, err := read([]byte(valid)); err != nil {
		t.Fatalf("want no error of a valid source, got %v", err)
	}
	for name, c := range map[string]struct{ old, now, want string }{
		"a field that does not exist":     {"shows: s", "shown: s", "shown"},
		"a panel without an explanation":  {"shows: s, ", "", "expected title, shows and queries"},
		"a kind that does not exist":      {"shows: s", "shows: s, kind: pie", `got "pie"`},
		"two thresholds":                  {"shows: s", "shows: s, from: 1, below: 2", "got both"},
		"a query of all fleets":           {"{$fleet}", "", "expected $fleet, $drivers, $objects or $tenant"},
		"a tenant without its variable":   {"$fleet", "$tenant", "only where the dashboard has tenant: true"},
		"a dashboard without a file name": {"file: a", "file: ''", "expected file and title"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(valid, c.old, c.now, 1)
			if changed == valid {
				t.Fatalf("%q is not in the source", c.old)
			}
			if _, err := read([]byte(changed)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want an error with %q, got %v", c.want, err)
			}
		})
	}
}

func TestPanelsFillLinesFromLeftToRight(t *testing.T) {
	panelOf := func(kind kind, width int) panel { return panel{Kind: kind, Width: width} }
	d := dashboard{Rows: []row{
		{Panels: []panel{panelOf(stat, 0), panelOf(stat, 0), panelOf(graph, 12), panelOf(graph, 12), panelOf(graph, 8)}},
		{Panels: []panel{panelOf(table, 24)}},
	}}
	type place struct{ X, Y, W, H int }
	want := []place{
		{0, 0, 24, 1},
		{0, 1, 4, 4}, // stats
		{4, 1, 4, 4},
		{0, 5, 12, 8}, // graphs are higher, so they begin a line
		{12, 5, 12, 8},
		{0, 13, 8, 8},
		{0, 21, 24, 1},
		{0, 22, 24, 8},
	}
	text, err := json.Marshal(d.panels())
	if err != nil {
		t.Fatal(err)
	}
	var panels []struct{ GridPos place }
	if err := json.Unmarshal(text, &panels); err != nil {
		t.Fatal(err)
	}
	var got []place
	for _, p := range panels {
		got = append(got, p.GridPos)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
}

func TestTargetsSelectOneFleet(t *testing.T) {
	p := panel{Kind: table, Queries: []query{{Expr: `sum(a{$fleet}) / sum(b{$tenant,x="y"}) / c{$objects} / d{$drivers}`}}}
	target := p.targets()[0]
	want := `sum(a{job="$job",namespace="$namespace"}) / sum(b{job="$job",namespace="$tenant",x="y"}) / c{job="$job"} / d{job=~"$job-driver-.+",namespace="$namespace"}`
	if target["expr"] != want {
		t.Errorf("want %s, got %s", want, target["expr"])
	}
	if target["instant"] != true {
		t.Errorf("want a table of this moment, got %v", target)
	}
}
