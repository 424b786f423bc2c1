package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

//go:embed dashboards.yaml
var source []byte

func main() {
	chart := flag.String("chart", "", "folder of the chart")
	runbooks := flag.String("runbooks", "", "folder of the runbooks")
	flag.Parse()
	if *chart == "" || *runbooks == "" {
		fmt.Fprintln(os.Stderr, "monitoring: expected -chart and -runbooks; see hack/generate.sh")
		os.Exit(2)
	}
	rules := filepath.Join(*chart, "rules")
	err := writeDashboards(filepath.Join(*chart, "dashboards"))
	if err == nil {
		err = write(filepath.Join(rules, objectivesFile), []byte(objectives()))
	}
	if err == nil {
		err = writeIndex(filepath.Join(*runbooks, "README.md"), filepath.Join(rules, alertsFile), filepath.Join(rules, objectivesFile))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "monitoring:", err)
		os.Exit(1)
	}
}

// write writes a file of the repository.
func write(file string, text []byte) error {
	if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // a checkout is readable for all
		return fmt.Errorf("write what is generated: %w", err)
	}
	return nil
}

// writeDashboards writes all dashboards, and removes those that the source does not have any more.
func writeDashboards(to string) error {
	all, err := read(source)
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(to, "*.json"))
	for _, file := range old {
		err = errors.Join(err, os.Remove(file))
	}
	if err != nil {
		return fmt.Errorf("remove the old dashboards: %w", err)
	}
	for _, d := range all {
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", " ")
		if err := encoder.Encode(d.grafana()); err != nil {
			return fmt.Errorf("encode dashboard %s: %w", d.File, err)
		}
		if err := write(filepath.Join(to, d.File+".json"), text.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// read returns the dashboards of a source. Errors: unknown fields, and what check finds.
func read(text []byte) ([]dashboard, error) {
	var all []dashboard
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		return nil, fmt.Errorf("read dashboards.yaml: %w", err)
	}
	var errs []error
	for _, d := range all {
		errs = append(errs, d.check())
	}
	return all, errors.Join(errs...)
}
