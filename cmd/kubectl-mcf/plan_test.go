package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/golden"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/plan"
)

const (
	timesOfPlan = "--create-time=3m --delete-time=90s"
	withClass   = `apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineDeployment
metadata: {name: workers}
spec: {template: {spec: {class: {name: large}}}}
`
)

// TestPlansOfChanges has plans of files, and of those that have none. Nothing is written.
func TestPlansOfChanges(t *testing.T) {
	folder := t.TempDir()
	s := clusterOf(t, "plan.yaml")
	var b strings.Builder
	for _, tc := range []struct{ file, content, flags string }{
		{"class.yaml", withClass, timesOfPlan},
		{"name.yaml", withClass, timesOfPlan + " -o name"},
		{"new.yaml", `{apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineDeployment, metadata: {name: spot, namespace: prod}, spec: {replicas: 2,
  selector: {matchLabels: {name: spot}},
  template: {metadata: {labels: {name: spot}}, spec: {class: {kind: MachineClass, name: small}}}}}`, timesOfPlan},
		{"machineclass.yaml", `{apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineClass, metadata: {name: small}, providerSpec: {size: huge},
  provider: other, secretRef: {name: other}, nodeTemplate: {virtualCapacity: {example.org/x: "1"}}}`, timesOfPlan},
		{"newclass.yaml", `{apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineClass, metadata: {name: huge}, providerSpec: {}}`, timesOfPlan},
		{"times.yaml", withClass, "--fleet-namespace=elsewhere"},
		{"target.yaml", withClass, timesOfPlan + " --no-target"},
		{"invalid.yaml", strings.Replace(withClass, "spec: {", "spec: {replicas: -1, strategy: {type: Sometimes}, ", 1), timesOfPlan},
		{"field.yaml", strings.Replace(withClass, "spec: {template", "spec: {templates", 1), timesOfPlan},
		{"several.yaml", `{apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineClass, metadata: {name: huge}, provider: p, providerSpec: {},
  secretRef: {name: s}}
---
{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Secret, metadata: {name: s}},
  {apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineDeployment, metadata: {name: spot}, spec: {replicas: 2,
    selector: {matchLabels: {name: spot}}, template: {metadata: {labels: {name: spot}}, spec: {class: {kind: MachineClass, name: huge}}}}},
  {apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineDeployment, metadata: {name: workers},
    spec: {template: {spec: {class: {name: huge}}}}}]}
`, timesOfPlan},
		{"several.yaml", "", "-o name " + timesOfPlan},
		{"class.yaml", "", "-f " + filepath.Join(folder, "class.yaml") + " " + timesOfPlan},
		{"secret.yaml", "{apiVersion: v1, kind: Secret, metadata: {name: s}}", timesOfPlan},
		{"namespace.yaml", strings.Replace(withClass, "name: workers", "name: workers, namespace: dev", 1), timesOfPlan},
		{"missing.yaml", "", timesOfPlan},
	} {
		path := filepath.Join(folder, tc.file)
		if tc.content != "" {
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		args := append([]string{"plan", "-f", path}, strings.Fields(tc.flags)...)
		b.WriteString(strings.ReplaceAll(transcript(t, s, args...), folder+"/", ""))
	}
	b.WriteString(transcript(t, s, "plan"))
	golden.Compare(t, "testdata/plans.txt", b.String())
	if n := s.Writes(); n > 0 {
		t.Errorf("%d writes: %q", n, s.Log())
	}
}

// TestPlansAsJSON: one object has its plan, and several have theirs, with what they do together.
func TestPlansAsJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.yaml")
	cluster := clusterOf(t, "plan.yaml")
	decoded := func(content string, into any) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got := call(t, cluster, append([]string{"plan", "-o", "json", "-f", path}, strings.Fields(timesOfPlan)...)...)
		if err := json.Unmarshal([]byte(got.out), into); err != nil {
			t.Fatalf("%v in %s%s", err, got.out, got.err)
		}
	}
	var one plan.Plan
	if decoded(withClass, &one); one.Name != "workers" || !one.Ends || len(one.Steps) == 0 || one.Machines.Created != 3 {
		t.Errorf("one object: got %+v", one)
	}
	var all plan.Whole
	decoded(withClass+"---\n{apiVersion: v1, kind: Secret, metadata: {name: s}}", &all)
	if len(all.Plans) != 1 || len(all.Plans[0].Steps) != len(one.Steps) || len(all.Notes) != 1 || all.Most != 4 ||
		all.Time.Median != one.Time.Median {
		t.Errorf("several objects: got %+v", all)
	}
}

// TestFilesOfChanges: of folders those that kubectl apply reads, and standard input.
func TestFilesOfChanges(t *testing.T) {
	folder := t.TempDir()
	for name, object := range map[string]string{
		"b.yml": "b", "a.yaml": "a", "c.json": "c", "d.txt": "d", "below/e.yaml": "e", "none.yaml": "", "empty/f.txt": "f",
	} {
		content := "# nothing\n"
		if object != "" {
			content = strings.Replace(withClass, "workers", object, 1)
		}
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		files     string
		recursive bool
		want, err string
	}{
		"a folder":             {".", false, "abc", ""},
		"with all below":       {".", true, "abec", ""},
		"several":              {"d.txt,below,-", false, "dei", ""},
		"a folder without any": {"empty", true, "", "expected files that end in .yaml"},
		"nothing in it":        {"none.yaml", false, "", "found none"},
		"no such file":         {"x.yaml", false, "", "no such file"},
		"none":                 {"", false, "", "-f FILE"},
	} {
		f := planFiles{recursive: tc.recursive}
		for _, name := range strings.FieldsFunc(tc.files, func(r rune) bool { return r == ',' }) {
			if name != standardInput {
				name = filepath.Join(folder, name)
			}
			f.names = append(f.names, name)
		}
		all, _, err := f.objects(strings.NewReader(strings.Replace(withClass, "workers", "i", 1)))
		got := ""
		for _, m := range all {
			got += m.Name
		}
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: got %q, %v; want %q, %q", name, got, err, tc.want, tc.err)
		}
	}
}

// TestPlansOfConfigs has plans of changes of MachineConfigs and KubeletConfigs.
func TestPlansOfConfigs(t *testing.T) {
	folder := t.TempDir()
	s := clusterOf(t, "planconfig.yaml")
	var b strings.Builder
	for _, tc := range []struct{ file, content, flags string }{
		{"config.yaml", `{apiVersion: fleet.machine.sapcloud.io/v1alpha1, kind: MachineConfig, metadata: {name: 00-base}, spec: {config: {
  ignition: {version: 3.4.0}, storage: {files: [{path: /etc/crio/crio.conf, contents: {source: "data:,secret"}}]}}}}`, "--update-time=4m"},
		{"kubelet.yaml", `{apiVersion: fleet.machine.sapcloud.io/v1alpha1, kind: KubeletConfig, metadata: {name: pods}, spec: {
  machineConfigPoolSelector: {matchLabels: {pool: workers}}, kubeletConfig: {maxPods: 50}}}`, ""},
		{"kubelet.yaml", "", "-f " + filepath.Join(folder, "config.yaml")},
		{"wrong.yaml", `{apiVersion: fleet.machine.sapcloud.io/v1alpha1, kind: KubeletConfig, metadata: {name: pods}, spec: {
  machineConfigPoolSelector: {matchLabels: {pool: workers}}, kubeletConfig: {maxPodz: 50}}}`, ""},
		{"other.yaml", `{apiVersion: fleet.machine.sapcloud.io/v1alpha1, kind: MachineConfig, metadata: {name: 01-other}, spec: {}}`, "--no-target"},
	} {
		path := filepath.Join(folder, tc.file)
		if tc.content != "" {
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		args := append([]string{"plan", "-f", path}, strings.Fields(tc.flags)...)
		b.WriteString(strings.ReplaceAll(transcript(t, s, args...), folder+"/", ""))
	}
	golden.Compare(t, "testdata/planconfigs.txt", b.String())
	if n := s.Writes(); n > 0 {
		t.Errorf("%d writes: %q", n, s.Log())
	}
}

// TestUnreadMetricsAreOneLine: it names all replicas, with the reason of the first.
func TestUnreadMetricsAreOneLine(t *testing.T) {
	all := unread([]view.Missing{{What: "Metrics of fleet-0", Why: "why", Right: "right"}, {What: "Metrics of fleet-1", Why: "another"}})
	if want := []view.Missing{{What: "Metrics of fleet-0, fleet-1", Why: "why", Right: "right"}}; !slices.Equal(all, want) {
		t.Errorf("got %+v, want %+v", all, want)
	}
	if all := unread(nil); len(all) != 0 {
		t.Errorf("of none: got %+v", all)
	}
}

// TestExitCodesOfPlans: without --exit-code a plan is a success; with it the code is the result,
// and errors keep theirs.
func TestExitCodesOfPlans(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.yaml")
	s := clusterOf(t, "plan.yaml")
	for name, tc := range map[string]struct {
		content, flags string
		want           int
	}{
		"nothing changes":          {strings.Replace(withClass, "large", "small", 1), "--exit-code", 0},
		"a change that ends":       {withClass, "--exit-code", exitChange},
		"one that does not":        {strings.Replace(withClass, "large", "huge", 1), "--exit-code", exitNoEnd},
		"no file that has a plan":  {"{}", "--exit-code", exitFailed},
		"wrong usage":              {withClass, "--exit-code --output=none", exitUsage},
		"a change without it":      {withClass, "", 0},
		"no end of one without it": {strings.Replace(withClass, "large", "huge", 1), "", 0},
	} {
		if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"plan", "-f", path}, strings.Fields(timesOfPlan+" "+tc.flags)...)
		got := call(t, s, args...)
		if got.code != tc.want || strings.Contains(got.err, "exit code") {
			t.Errorf("%s: exit code %d, want %d: %s", name, got.code, tc.want, got.err)
		}
	}
}
