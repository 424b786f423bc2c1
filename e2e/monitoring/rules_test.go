//go:build e2e

package monitoring

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	// speed is by how much each duration of the rules is divided.
	speed = 30
	// interval is that of scrapes and evaluations: 30 s in production.
	interval = 30 * time.Second / speed
	// joinBound and deletionBound are the times of objectives.
	joinBound, deletionBound = 10 * time.Minute / speed, 30 * time.Minute / speed
)

// rule is an alert, or a series that is recorded.
type rule struct {
	Alert       string            `json:"alert,omitempty"`
	Record      string            `json:"record,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type ruleGroup struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

type ruleFile struct {
	Groups []ruleGroup `json:"groups"`
}

// chartRules renders the rules of the chart. The bounds of objectives are those of production,
// divided by speed.
func chartRules(ctx context.Context, t *testing.T) ruleFile {
	t.Helper()
	bin, err := harness.Bin()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	helm := exec.CommandContext(ctx, filepath.Join(bin, "helm"), "template", harness.FleetName, chart(t),
		"--namespace", harness.FleetNamespace,
		"--show-only", "templates/monitoring.yaml", "--set", "image.repository=none,prometheusRule.enabled=true",
		"--set", fmt.Sprintf("prometheusRule.objectives.join.seconds=%.0f,prometheusRule.objectives.deletion.seconds=%.0f",
			joinBound.Seconds(), deletionBound.Seconds()))
	helm.Stderr = &stderr
	rendered, err := helm.Output()
	if err != nil {
		t.Fatalf("render the rules: %v\n%s", err, &stderr)
	}
	var object struct {
		Spec ruleFile `json:"spec"`
	}
	if err := yaml.Unmarshal(rendered, &object); err != nil {
		t.Fatal(err)
	}
	if len(object.Spec.Groups) == 0 {
		t.Fatalf("want groups of rules, got %s", rendered)
	}
	return object.Spec
}

func chart(t *testing.T) string {
	t.Helper()
	repository, err := harness.Repository()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(repository, "charts", "machine-controller-fleet")
}

var (
	windows = regexp.MustCompile(`(\[|offset )(\w+)`)
	// ages are comparisons of series that are ages.
	ages = regexp.MustCompile(`(_seconds\{[^}]*\}\) > )(\d+)`)
)

// faster returns the rules with all durations divided by speed: that for which an alert waits,
// those of windows, and ages that are compared with a number of seconds. Everything else is as the
// chart renders it.
func (f ruleFile) faster(t *testing.T) ruleFile {
	t.Helper()
	divide := func(duration string) string {
		if days, found := strings.CutSuffix(duration, "d"); found {
			n, err := strconv.Atoi(days)
			if err != nil {
				t.Fatalf("a duration of a rule: %v", err)
			}
			duration = strconv.Itoa(n*24) + "h"
		}
		long, err := time.ParseDuration(duration)
		if err != nil || long%(speed*time.Second) != 0 {
			t.Fatalf("a duration of a rule: want a multiple of %d s, got %s, %v", speed, duration, err)
		}
		return (long / speed).String()
	}
	var all ruleFile
	for _, group := range f.Groups {
		short := ruleGroup{Name: group.Name}
		for _, r := range group.Rules {
			if r.For != "" {
				r.For = divide(r.For)
			}
			r.Expr = windows.ReplaceAllStringFunc(r.Expr, func(window string) string {
				parts := windows.FindStringSubmatch(window)
				return parts[1] + divide(parts[2])
			})
			r.Expr = ages.ReplaceAllStringFunc(r.Expr, func(comparison string) string {
				parts := ages.FindStringSubmatch(comparison)
				seconds, err := strconv.Atoi(parts[2])
				if err != nil {
					t.Fatalf("an age in a rule: %v", err)
				}
				return parts[1] + strconv.Itoa(seconds/speed)
			})
			short.Rules = append(short.Rules, r)
		}
		all.Groups = append(all.Groups, short)
	}
	return all
}

// write writes the rules to a file.
func (f ruleFile) write(t *testing.T) string {
	t.Helper()
	text, err := yaml.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// alerts returns the names of all alerts.
func (f ruleFile) alerts() map[string]bool {
	names := map[string]bool{}
	for _, group := range f.Groups {
		for _, r := range group.Rules {
			if r.Alert != "" {
				names[r.Alert] = true
			}
		}
	}
	return names
}

// TestFaster: the rules change only in their durations.
func TestFaster(t *testing.T) {
	old := ruleFile{Groups: []ruleGroup{{Name: "g", Rules: []rule{
		{Alert: "A", For: "15m", Expr: `sum by (job) (rate(a_total{code!~"a|b"}[1h])) > 0.1`},
		{Alert: "B", For: "1h", Expr: `max by (job) (mcf_oldest_machine_seconds{phase="Pending"}) > 900`},
		{Record: "c", Expr: `avg_over_time(d[3d] offset 30m)`},
	}}}}
	want := []rule{
		{Alert: "A", For: "30s", Expr: `sum by (job) (rate(a_total{code!~"a|b"}[2m0s])) > 0.1`},
		{Alert: "B", For: "2m0s", Expr: `max by (job) (mcf_oldest_machine_seconds{phase="Pending"}) > 30`},
		{Record: "c", Expr: `avg_over_time(d[2h24m0s] offset 1m0s)`},
	}
	for i, got := range old.faster(t).Groups[0].Rules {
		if got.Expr != want[i].Expr || got.For != want[i].For {
			t.Errorf("want %+v, got %+v", want[i], got)
		}
	}
}
