package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// row is one figure of a run, in the form of those of e2e/bench.
type row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Bar is the limit that the value must keep; nil if it has none.
	Bar *float64 `json:"bar,omitempty"`
}

//go:embed bars.json
var barsFile []byte

// rows are the figures of a run, in a file of the lab's folder. Those of earlier runs on the same
// lab stay.
type rows struct {
	file string
	bars map[string]float64
	all  []row
}

func newRows(dir string) (*rows, error) {
	r := &rows{file: filepath.Join(dir, "bench.json")}
	if err := json.Unmarshal(barsFile, &r.bars); err != nil {
		return nil, fmt.Errorf("bars.json: %w", err)
	}
	text, err := os.ReadFile(r.file)
	if err == nil {
		err = json.Unmarshal(text, &r.all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("rows of earlier runs: %w", err)
	}
	return r, nil
}

// add records a figure, in the place of an earlier one of the name.
func (r *rows) add(name string, value float64, unit string) {
	r.all = slices.DeleteFunc(r.all, func(one row) bool { return one.Name == name })
	one := row{Name: name, Value: value, Unit: unit}
	if bar, has := r.bars[name]; has {
		one.Bar = &bar
	}
	r.all = append(r.all, one)
}

// addDurations records the median, the 99th percentile and the maximum.
func (r *rows) addDurations(name string, d durations) {
	for _, p := range []struct {
		of      int
		written string
	}{{50, "p50"}, {99, "p99"}, {100, "max"}} {
		r.add(fmt.Sprintf("%s_%s_seconds", name, p.written), d.percentile(p.of).Seconds(), "s")
	}
}

// missed names the figures beyond their limit.
func (r *rows) missed() (names []string) {
	for _, one := range r.all {
		if one.Bar != nil && one.Value > *one.Bar {
			names = append(names, one.Name)
		}
	}
	return names
}

// write writes the file. Errors: those of the file; figures beyond their limit.
func (r *rows) write() error {
	text, err := json.MarshalIndent(r.all, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the rows: %w", err)
	}
	if err := os.WriteFile(r.file, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the rows: %w", err)
	}
	if missed := r.missed(); len(missed) > 0 {
		return fmt.Errorf("missed bars: %s", strings.Join(missed, ", "))
	}
	return nil
}
