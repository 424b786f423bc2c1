package expand

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
)

// world is one with a template and the role worker.
func world(templates ...string) World {
	w := World{Sources: map[string]string{}, Config: &v1alpha1.ControllerConfig{}}
	w.Config.Spec = v1alpha1.ControllerConfigSpec{
		Roles: []string{"worker"}, ClusterDNS: []string{"10.0.0.10", "10.0.0.11"}, ClusterDomain: "cluster.local", OSImageURL: "os:1",
		CABundles: []v1alpha1.CABundle{{Name: "a", PEM: "-----A\n-----B\n"}}, Images: map[string]string{"pause": "pause:3"},
		Values: runtime.RawExtension{
			Raw: []byte(`{"maxPods": 250, "ratio": 0.5, "nested": {"secret": "hush"}, "list": ["x", "y"], "big": 123456789012345678901234567890}`),
		},
	}
	for i := 0; i+1 < len(templates); i += 2 {
		w.Sources[templates[i]] = templates[i+1]
	}
	return w
}

// arguments renders a text in a kernel argument, which shows it as it is.
func arguments(t *testing.T, text string) (string, error) {
	t.Helper()
	all, err := Render(world("00-a.yaml", "kernelArguments: ["+text+"]"))
	if err != nil {
		return "", err
	}
	return strings.Join(all[0].Spec.KernelArguments, "|"), nil
}

func TestValuesAndFunctions(t *testing.T) {
	for text, want := range map[string]string{
		`{{ .Role }}`:                        "worker",
		`{{ quote (join "," .ClusterDNS) }}`: "10.0.0.10,10.0.0.11",
		`{{ sha256 "a" | quote }}`:           "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
		`{{ range $i, $d := .ClusterDNS }}{{ if $i }}, {{ end }}{{ quote $d }}{{ end }}`: "10.0.0.10|10.0.0.11",
		`{{ toJSON .ClusterDNS | quote }}`:                                               `["10.0.0.10","10.0.0.11"]`,
		`{{ quote .ClusterDomain }}`:                                                     "cluster.local",
		`{{ quote (b64 .OSImageURL) }}`:                                                  "b3M6MQ==",
		`"{{ .Values.maxPods }}"`:                                                        "250",
		`"{{ .Values.ratio }}"`:                                                          "0.5",
		`"{{ .Values.big }}"`:                                                            "1.2345678901234568e+29",
		`"{{ get .Values "maxPods" 10 }} {{ get .Values "none" 10 }}"`:                   "250 10",
		`{{ if has .Values "none" }}a{{ else }}b{{ end }}`:                               "b",
		`{{ if and (gt .Values.maxPods 100) (has .Images "pause") }}{{ quote .Images.pause }}{{ end }}`: "pause:3",
		`{{ range .CABundles }}{{ quote .Name }}, {{ quote .PEM }}{{ end }}`:                            "a|-----A\n-----B\n",
		`{{ define "x" }}{{ quote . }}{{ end }}{{ template "x" .Role }}`:                                "worker",
	} {
		if strings.Contains(want, "\n") {
			continue // not on one line; see TestFilesAndUnits
		}
		if got, err := arguments(t, text); err != nil || got != want {
			t.Errorf("%s: got %q (%v), want %q", text, got, err, want)
		}
	}
}

func TestFilesAndUnits(t *testing.T) {
	all, err := Render(world("05-b.yaml", `
files:
{{- range .CABundles }}
- path: /etc/ssl/{{ .Name }}.pem
  mode: "0600"
  contents: |
    {{ indent 4 .PEM }}
{{- end }}
- {path: /etc/b, contents: b}
units:
- name: a.service
  enabled: true
  contents: |
    [Service]
    ExecStart=/bin/true
- {name: b.service, mask: true, dropins: [{name: 10-x.conf, contents: "[Service]\n"}]}
kernelType: realtime
fips: true
`))
	if err != nil || len(all) != 1 {
		t.Fatal(err)
	}
	c := all[0]
	want := `{"ignition":{"version":"3.5.0"},"storage":{"files":[` +
		`{"contents":{"source":"data:;base64,LS0tLS1BCi0tLS0tQgo="},"mode":384,"overwrite":true,"path":"/etc/ssl/a.pem"},` +
		`{"contents":{"source":"data:;base64,Yg=="},"mode":420,"overwrite":true,"path":"/etc/b"}]},` +
		`"systemd":{"units":[{"contents":"[Service]\nExecStart=/bin/true\n","enabled":true,"name":"a.service"},` +
		`{"dropins":[{"contents":"[Service]\n","name":"10-x.conf"}],"mask":true,"name":"b.service"}]}}`
	if diff := cmp.Diff(want, string(c.Spec.Config.Raw)); diff != "" {
		t.Error(diff)
	}
	if c.Name != "05-worker-b" || c.Labels[v1alpha1.LabelRole] != "worker" ||
		c.Annotations[v1alpha1.AnnotationGeneratedBy] != v1alpha1.GeneratedFromTemplate ||
		c.Spec.KernelType != v1alpha1.KernelRealtime || !c.Spec.FIPS {
		t.Errorf("%+v", c)
	}
}

// A template of a role replaces that for all roles; one that results in nothing creates no
// MachineConfig.
func TestRoles(t *testing.T) {
	w := world("00-a.yaml", `kernelArguments: [all]`, "00-a.gpu.yaml", `kernelArguments: [gpu]`, "10-b.yaml",
		`{{ if eq .Role "gpu" }}fips: true{{ end }}`,
		"20-c.other.yaml", `{{ .Broken }}`)
	w.Config.Spec.Roles = []string{"worker", "gpu", "worker"}
	all, err := Render(w)
	var got []string
	for _, c := range all {
		got = append(got, fmt.Sprintf("%s %v %t", c.Name, c.Spec.KernelArguments, c.Spec.FIPS))
	}
	if want := []string{"00-gpu-a [gpu] false", "00-worker-a [all] false", "10-gpu-b [] true"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q (%v), want %q", got, err, want)
	}
}

func TestRefusals(t *testing.T) {
	many := world()
	for i := range MaxTemplates + 1 {
		many.Sources[fmt.Sprintf("00-a%d.yaml", i)] = ""
	}
	ambiguous := world("00-b.yaml", "fips: true", "00-a-b.yaml", "fips: true")
	ambiguous.Config.Spec.Roles = []string{"x", "x-a"}
	role := world("00-a.yaml", "")
	role.Config.Spec.Roles = []string{"Up"}
	secret := world("00-a.yaml", "")
	secret.PullSecret = "{"
	values := world("00-a.yaml", "")
	values.Config.Spec.Values.Raw = []byte(`[1]`)
	doubling := `{{ $x := "xxxxxxxxxxxxxxxx" }}{{ range 40 }}{{ $x = toJSON $x | b64 }}{{ end }}`
	calls := `{{ define "l0" }}{{ end }}`
	for i := range 40 {
		calls += fmt.Sprintf(`{{ define "l%d" }}{{ template "l%d" }}{{ template "l%d" }}{{ end }}`, i+1, i, i)
	}
	for name, tc := range map[string]struct {
		w    World
		want string
	}{
		"a name":               {world("a.yaml", ""), "template a.yaml: the name must be NN-name.yaml"},
		"a name of a path":     {world("00-../a.yaml", ""), "the name must be"},
		"too many":             {many, "there are 257 templates"},
		"too large":            {world("00-a.yaml", strings.Repeat(" ", MaxSource+1)), "at most 262144"},
		"a role":               {role, "a role must have"},
		"the same result":      {ambiguous, "two templates result in MachineConfig 00-x-a-b"},
		"syntax":               {world("00-a.yaml", "{{ if }}"), "it cannot be parsed"},
		"a missing value":      {world("00-a.yaml", "{{ .Values.none }}"), `map has no entry for key "none"`},
		"a missing field":      {world("00-a.yaml", "{{ .None }}"), `map has no entry for key "None"`},
		"printf":               {world("00-a.yaml", `{{ printf "%1000000d" 1 }}`), `function "printf" does not exist`},
		"a function in a pipe": {world("00-a.yaml", `{{ if (html "a" | print) }}{{ end }}`), `does not exist`},
		"a function in else": {
			world("00-a.yaml", `{{ if false }}{{ else }}{{ with 1 }}{{ urlquery "a" }}{{ end }}{{ end }}`), `does not exist`,
		},
		"a function in a define": {world("00-a.yaml", `{{ define "x" }}{{ call .Role }}{{ end }}`), `does not exist`},
		"the counter":            {world("00-a.yaml", `{{ step }}`), `function "step" does not exist`},
		"a long loop":            {world("00-a.yaml", `{{ range 1000000000 }}{{ end }}`), "more than 10000 rounds"},
		"loops in loops": {
			world("00-a.yaml", `{{ range 1000 }}{{ range 1000 }}{{ range 1000 }}{{ end }}{{ end }}{{ end }}`), "more than 10000 rounds",
		},
		"recursion":      {world("00-a.yaml", `{{ define "x" }}{{ template "x" }}{{ end }}{{ template "x" }}`), "more than 10000 rounds"},
		"calls of calls": {world("00-a.yaml", calls+`{{ template "l40" }}`), "more than 10000 rounds"},
		"doubling":       {world("00-a.yaml", doubling), "its functions return more than"},
		"a large result": {
			world("00-a.yaml", `{{ range 9000 }}`+strings.Repeat("x", 200)+`{{ end }}`), "it results in more than 1048576 bytes",
		},
		"an indent":              {world("00-a.yaml", `{{ indent 1000000 "a" }}`), "expected an indent from 0 to 64"},
		"a list of no strings":   {world("00-a.yaml", `{{ join "," .CABundles }}`), "expected a list of strings"},
		"no YAML":                {world("00-a.yaml", `files: [`), "it is no object of YAML"},
		"an unknown field":       {world("00-a.yaml", `file: []`), `check the field "file"`},
		"a mode":                 {world("00-a.yaml", `files: [{path: /a, mode: "9", contents: ""}]`), "must be octal"},
		"a mode with setuid":     {world("00-a.yaml", `files: [{path: /a, mode: "4755", contents: ""}]`), "at most 0777"},
		"a path":                 {world("00-a.yaml", `files: [{path: a, contents: ""}]`), "spec.config"},
		"an extension":           {world("00-a.yaml", `extensions: [x]`), "does not exist"},
		"a pull secret":          {secret, "must have JSON"},
		"values that are no map": {values, "spec.values"},
		"a method of a value":    {world("00-a.yaml", `{{ .Role.String }}`), "it cannot be rendered"},
		"an index out of range":  {world("00-a.yaml", `{{ index .ClusterDNS 9 }}`), "it cannot be rendered"},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := Render(tc.w)
			if err == nil || !strings.Contains(err.Error(), tc.want) || all != nil {
				t.Errorf("got %d MachineConfigs, error %v; want an error with %q", len(all), err, tc.want)
			}
		})
	}
}

// No error has a value: a Secret may be one.
func TestErrorsHaveNoValues(t *testing.T) {
	for _, text := range []string{
		`{{ .Values.nested.secret.more }}`, `{{ index .Values.nested.secret "a" "b" }}`, `{{ join .Values.nested.secret .Values.nested }}`,
		`files: {{ .Values.nested.secret }}`, `kernelType: {{ .Values.nested.secret }}x: [`,
		`units: [{name: a.service, contents: {{ .Values.nested.secret }}]`,
		`files: [{path: /a, mode: {{ .Values.nested.secret }}, contents: ""}]`, `{{ indent .Values.nested.secret "a" }}`,
		`{{ lt .Values.nested.secret 3 }}`,
	} {
		if _, err := Render(world("00-a.yaml", text)); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzRender renders any text: it returns, and what it returns is valid.
func FuzzRender(f *testing.F) {
	for _, seed := range []string{
		`kernelArguments: [{{ quote .ClusterDomain }}]`, `{{ range .CABundles }}{{ .PEM }}{{ end }}`,
		`{{ define "x" }}{{ template "x" }}{{ end }}{{ template "x" }}`, `files: [{path: /a, contents: {{ toJSON .Values }}}]`,
		`{{ $x := 1 }}{{ range $i := 5 }}{{ $x }}{{ break }}{{ end }}`, `{{ with .Values }}{{ .maxPods }}{{ end }}`, `{{- /* */ -}}`,
		"units:\n- name: a.service\n", `{{ index .Values "maxPods" | len }}`, strings.Repeat("(", 100),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		all, err := Render(world("00-a.yaml", text))
		again, err2 := Render(world("00-a.yaml", text))
		if (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() || !cmp.Equal(all, again) {
			t.Fatalf("two results of the same: %v and %v", err, err2)
		}
		for _, c := range all {
			if c.Name != "00-worker-a" || !json.Valid(c.Spec.Config.Raw) {
				t.Fatalf("%+v", c)
			}
		}
	})
}
