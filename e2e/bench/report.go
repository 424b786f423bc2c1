package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// pair is one figure of one run: that of the fleet and that of the floor.
type pair struct{ value, floor float64 }

// sample is the figures of one run, by name of the row.
type sample map[string]pair

// row is one line of the table, and one object of bench.json.
type row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Floor float64 `json:"floor"`
	Ratio float64 `json:"ratio"`
	Unit  string  `json:"unit"`
	Bar   float64 `json:"bar"`
}

//go:embed bars.json
var barsFile []byte

// report takes the median of each figure over all runs.
func report(samples []sample) ([]row, error) {
	bars := map[string]float64{}
	if err := json.Unmarshal(barsFile, &bars); err != nil {
		return nil, fmt.Errorf("bars.json: %w", err)
	}
	var names []string
	for name := range samples[0] {
		names = append(names, name)
	}
	slices.Sort(names)
	var rows []row
	for _, name := range names {
		bar, known := bars[barOf(name)]
		if !known {
			return nil, fmt.Errorf("bars.json has no bar for %s", name)
		}
		value := median(samples, func(s sample) float64 { return s[name].value })
		floor := median(samples, func(s sample) float64 { return s[name].floor })
		r := row{Name: name, Value: round(value), Floor: round(floor), Unit: unit(name), Bar: bar}
		if floor > 0 {
			r.Ratio = round(value / floor)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// sizes are the numbers of machines and of replicas in a row of the parts scale and leader.
var sizes = regexp.MustCompile(`_of_\d+_by_\d+$`)

// barOf returns the name of a row in bars.json: those of different sizes have one bar.
func barOf(name string) string { return sizes.ReplaceAllString(name, "") }

// unit reads the unit of a row from its name.
func unit(name string) string {
	name = barOf(name)
	switch {
	case strings.HasSuffix(name, "_seconds"):
		return "s"
	case strings.Contains(name, "_ms_"):
		return "ms"
	case strings.Contains(name+"_", "_millicores_"):
		return "mcores"
	case strings.HasSuffix(name, "_kb"), strings.Contains(name, "_kb_"):
		return "kB"
	case strings.Contains(name, "_mb_"):
		return "MB"
	case strings.Contains(name+"_", "_ratio_"):
		return "×"
	case strings.Contains(name, "_calls_"):
		return "calls"
	}
	if strings.Contains(name, "_reads_") {
		return "reads"
	}
	if strings.Contains(name, "_requests_") {
		return "requests"
	}
	return "writes"
}

func median(samples []sample, of func(sample) float64) float64 {
	var values []float64
	for _, s := range samples {
		values = append(values, of(s))
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 0 {
		return (values[middle-1] + values[middle]) / 2
	}
	return values[middle]
}

func round(x float64) float64 { return float64(int64(x*100+0.5)) / 100 }

// anyMissed reports whether a value is above its bar.
func anyMissed(rows []row) bool {
	return slices.ContainsFunc(rows, func(r row) bool { return r.Value > r.Bar })
}

func table(rows []row) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tVALUE\tFLOOR\tRATIO\tUNIT\tBAR\t")
	for _, r := range rows {
		verdict := ""
		if r.Value > r.Bar {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%s\t%g\t%s\n", r.Name, r.Value, r.Floor, r.Ratio, r.Unit, r.Bar, verdict)
	}
	_ = w.Flush() // a strings.Builder returns no errors
	return text.String()
}

func write(rows []row, file string) error {
	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the table: %w", err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}
