package main

import (
	"errors"
	"fmt"
	"strings"
)

// dashboard is one dashboard of the source.
type dashboard struct {
	// File is the name of its file, without the suffix.
	File  string `json:"file"`
	Title string `json:"title"`
	// Tenant adds a variable: the namespace whose objects are shown.
	Tenant bool  `json:"tenant"`
	Rows   []row `json:"rows"`
}

// row is a heading with panels below it, from left to right.
type row struct {
	Title  string  `json:"title"`
	Panels []panel `json:"panels"`
}

// panel shows some queries.
type panel struct {
	Title string `json:"title"`
	// Shows describes it, for its tooltip.
	Shows string `json:"shows"`
	// Kind is graph, which is the default, stat, which is the last value, or table, which has the last
	// values with their labels.
	Kind kind `json:"kind"`
	// Unit is that of the values, as Grafana names it; short, a plain number, is the default.
	Unit string `json:"unit"`
	// Width is that of 24 columns; a third of them is the default, and a sixth for a stat.
	Width int `json:"width"`
	// From is the value from which a stat is red; Below, the value below which it is.
	From  *float64 `json:"from"`
	Below *float64 `json:"below"`
	// Stacked graphs show a sum and its parts.
	Stacked bool `json:"stacked"`
	// Queries are in PromQL, by their legends. $fleet, $objects and $tenant stand for matchers.
	Queries []query `json:"queries"`
}

// query is a query in PromQL. $fleet, $objects and $tenant stand for matchers; see selections.
type query struct {
	Legend string `json:"legend"`
	Expr   string `json:"expr"`
}

// kind is a type of panel.
type kind string

// The kinds of panels.
const (
	graph kind = "graph"
	stat  kind = "stat"
	table kind = "table"
)

const (
	columns                = 24 // of Grafana's grid
	graphWidth, statWidth  = columns / 3, columns / 6
	graphHeight, rowHeight = 8, 1
	statHeight             = 4
)

// selections are the matchers that queries refer to. Series about an object have its namespace, and
// those about the fleet its own. The chart has the processes of drivers scraped as jobs of their
// own.
func selections() *strings.Replacer {
	return strings.NewReplacer(
		"$fleet", `job="$job",namespace="$namespace"`,
		"$drivers", `job=~"$job-driver-.+",namespace="$namespace"`,
		"$objects", `job="$job"`,
		"$tenant", `job="$job",namespace="$tenant"`,
	)
}

func (p panel) kind() kind {
	if p.Kind == "" {
		return graph
	}
	return p.Kind
}

func (p panel) width() int {
	switch {
	case p.Width > 0:
		return p.Width
	case p.Kind == stat:
		return statWidth
	}
	return graphWidth
}

func (p panel) height() int {
	if p.Kind == stat {
		return statHeight
	}
	return graphHeight
}

// check returns what is wrong with a dashboard.
func (d dashboard) check() error {
	var errs []error
	if d.File == "" || d.Title == "" {
		errs = append(errs, fmt.Errorf("dashboard %q: expected file and title", d.File))
	}
	titles := map[string]bool{}
	for _, r := range d.Rows {
		for _, p := range r.Panels {
			wrong := p.mistakes(d.Tenant)
			if titles[p.Title] {
				wrong = append(wrong, "expected different titles of panels, got this one twice")
			}
			titles[p.Title] = true
			for _, text := range wrong {
				errs = append(errs, fmt.Errorf("dashboard %s, panel %q: %s", d.File, p.Title, text))
			}
		}
	}
	return errors.Join(errs...)
}

// mistakes returns what is wrong with a panel of a dashboard that has a tenant, or has none.
func (p panel) mistakes(hasTenant bool) (wrong []string) {
	if p.Title == "" || p.Shows == "" || len(p.Queries) == 0 {
		wrong = append(wrong, "expected title, shows and queries")
	}
	switch p.kind() {
	case graph, stat, table:
	default:
		wrong = append(wrong, fmt.Sprintf("expected kind graph, stat or table, got %q", p.Kind))
	}
	if p.From != nil && p.Below != nil {
		wrong = append(wrong, "expected from or below, got both")
	}
	for _, q := range p.Queries {
		selects := func(name string) bool { return strings.Contains(q.Expr, name) }
		if !selects("$fleet") && !selects("$drivers") && !selects("$objects") && !selects("$tenant") {
			wrong = append(wrong, "expected $fleet, $drivers, $objects or $tenant in a query, got "+q.Expr)
		}
		if !hasTenant && selects("$tenant") {
			wrong = append(wrong, "expected $tenant only where the dashboard has tenant: true, got "+q.Expr)
		}
	}
	return wrong
}
