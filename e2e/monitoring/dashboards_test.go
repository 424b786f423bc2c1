//go:build e2e

package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// dashboard is a dashboard of the chart, as far as it has queries.
type dashboard struct {
	Title      string `json:"title"`
	Templating struct {
		List []struct {
			Name  string          `json:"name"`
			Type  string          `json:"type"`
			Query json.RawMessage `json:"query"`
		} `json:"list"`
	} `json:"templating"`
	Panels []struct {
		Title   string `json:"title"`
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
}

// TestDashboards rolls machines in a lab, and then has some faults: each query of each dashboard
// has data, and the checks of runbooks work. Before the faults no alert fires.
func TestDashboards(t *testing.T) {
	const namespace, pool = "tenant", "pool"
	s := newScene(t, harness.Options{}, "--metrics-by-machine=all", "--machine-safety-orphan-vms-period=5s",
		"--machine-safety-orphan-vms-quarantine=5s", "--machine-health-timeout=10m")
	s.must(s.lab.Prepare(s.ctx, namespace, ""))
	s.deploy(namespace, pool, 3)
	s.must(s.lab.Running(s.ctx, namespace, 3))
	s.roll(namespace, pool, "second")
	s.rest(5 * interval) // all of it was scraped
	if fired := s.fired(); len(fired) > 0 {
		t.Errorf("want no alert in a rollout without faults, got %v", fired)
	}

	s.orphan(namespace, "orphan")
	vms, err := s.lab.Cloud.VMs(s.ctx, namespace)
	s.must(err)
	s.must(s.lab.Cloud.Act(s.ctx, vms[0].ID, cloudapi.ActionLoseReady)) // a condition of a Node
	s.must(s.lab.Cloud.Set(s.ctx, `{"faults":[{"operations":["CreateInstance"],"kind":"internal","rate":1}]}`))
	s.patch(namespace, pool, `{"spec":{"template":{"metadata":{"annotations":{"template":"third"}}}}}`) // a rollout that stalls
	_, followers := s.roles()
	s.must(s.lab.Do(s.ctx, followers[0], harness.Kill)) // slots are taken over, and do not open at once
	s.must(s.lab.Do(s.ctx, followers[1], harness.Stop)) // slots are handed over
	s.must(s.lab.WaitHeld(s.ctx, slots))
	s.rest(5 * interval)

	files, err := filepath.Glob(filepath.Join(chart(t), "dashboards", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("want dashboards in the chart, got %v, %v", files, err)
	}
	queries := 0
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { queries += s.of(t).answers(file, namespace) })
	}
	t.Logf("%d queries of %d dashboards", queries, len(files))
	s.runbooks()
	for alert, text := range map[string]string{
		"CloudErrors": namespace + "/", "MachinesNotCreated": namespace + "/", "RolloutStalled": namespace + "/" + pool + " True",
	} {
		s.show(alert, text)
	}
	_, err = s.lab.Kubectl(s.ctx, "-n", namespace, "label", "mcs", "--all", v1alpha1.LabelFreeze+"=True")
	s.must(err)
	s.show("CreatesNoMachines", namespace+"/"+pool+"-") // of a MachineSet
}

// answers executes the queries of a dashboard, and returns how many there are.
func (s *scene) answers(file, tenant string) (queries int) {
	s.Helper()
	text, err := os.ReadFile(file)
	s.must(err)
	var d dashboard
	s.must(json.Unmarshal(text, &d))
	selection := strings.NewReplacer("$job", "fleet", "$namespace", harness.FleetNamespace, "$tenant", tenant)
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			queries++
			// A panel shows 0 where there is no series; that must not hide the name of a series that does
			// not exist.
			query := strings.TrimSuffix(selection.Replace(target.Expr), " or vector(0)")
			all, err := s.prom.QueryAll(s.ctx, query, interval)
			if err != nil {
				s.Errorf("panel %q: %s: %v", panel.Title, query, err)
				continue
			}
			values := 0
			for _, series := range all {
				values += len(series.Values)
			}
			if values == 0 && !strings.Contains(query, "mcf_autoscaler_") { // the lab serves no autoscalers
				s.Errorf("panel %q: want data, got none of %s", panel.Title, query)
			}
		}
	}
	for _, variable := range d.Templating.List {
		if variable.Type != "query" {
			continue
		}
		queries++
		s.offers(variable.Name, selection.Replace(string(variable.Query)))
	}
	return queries
}

var labelValues = regexp.MustCompile(`label_values\((.*), (\w+)\)`)

// offers checks that a variable offers the value that the test selects.
func (s *scene) offers(name, definition string) {
	s.Helper()
	var query struct {
		Query string `json:"query"`
	}
	s.must(json.Unmarshal([]byte(definition), &query))
	parts := labelValues.FindStringSubmatch(query.Query)
	if parts == nil {
		s.Fatalf("variable %s: want label_values, got %s", name, query.Query)
	}
	values, err := s.prom.LabelValues(s.ctx, parts[2], parts[1])
	s.must(err)
	if len(values) == 0 {
		s.Errorf("variable %s: want values of %s, got none", name, query.Query)
	}
}
