package fold

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render/merge"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/scenario"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func pool() *v1alpha1.MachineConfigPool {
	return &v1alpha1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "workers", Labels: map[string]string{"pool": "workers"}}}
}

func config(name string, hours int, settings string) *v1alpha1.KubeletConfig {
	c := &v1alpha1.KubeletConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3, CreationTimestamp: metav1.NewTime(start.Add(-time.Duration(hours) * time.Hour))},
	}
	c.Spec.MachineConfigPoolSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "workers"}}
	c.Spec.KubeletConfig.Raw = []byte(settings)
	return c
}

func TestCheck(t *testing.T) {
	scenario.Run(t, "testdata/check.txt", func(_ *testing.T, s scenario.Scenario) string {
		if err := Check(config("a", 0, s.Given[0].Value)); err != nil {
			return err.Error()
		}
		return "valid"
	})
}

func TestFold(t *testing.T) {
	for _, pattern := range []string{"testdata/fold.txt", "testdata/together.txt"} {
		scenario.Run(t, pattern, func(t *testing.T, s scenario.Scenario) string {
			var byDefault []byte
			var configs []*v1alpha1.KubeletConfig
			for _, fact := range s.Given {
				name, age, _ := strings.Cut(fact.Key, " ")
				switch name {
				case "default":
					byDefault = []byte(fact.Value)
				case "other":
					other := config("other", 0, fact.Value)
					other.Spec.MachineConfigPoolSelector.MatchLabels["pool"] = "masters"
					empty := config("empty", 0, fact.Value)
					empty.Spec.MachineConfigPoolSelector = &metav1.LabelSelector{}
					none := config("none", 0, fact.Value)
					none.Spec.MachineConfigPoolSelector = nil
					ending := config("ending", 0, fact.Value)
					ending.DeletionTimestamp = &ending.CreationTimestamp
					configs = append(configs, other, empty, none, ending)
				default:
					hours, err := strconv.Atoi(age)
					if err != nil {
						t.Fatal(err)
					}
					configs = append(configs, config(name, hours, fact.Value))
				}
			}
			slices.Reverse(configs)
			return shown(t, Fold(pool(), byDefault, configs))
		})
	}
}

func shown(t *testing.T, f Folded) string {
	t.Helper()
	lines := []string{"no MachineConfig"}
	switch {
	case f.Blocked && f.MachineConfig == nil:
		lines[0] = "blocked"
	case f.MachineConfig != nil:
		lines[0] = contentOf(t, f.MachineConfig)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Pools)) {
		status := f.Pools[name]
		if status.Name != "workers" || (status.MachineConfig == "99-workers-kubelet-managed") != (status.Message == "") {
			t.Errorf("status of %s: %+v", name, status)
		}
		line := name + " applied"
		if status.Message != "" {
			line = name + ": " + status.Message
		}
		if len(status.Overridden) > 0 {
			line += ", overridden: " + strings.Join(status.Overridden, ", ")
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

// contentOf returns what kubelets read.
func contentOf(t fatal, c *v1alpha1.MachineConfig) string {
	t.Helper()
	var ignition struct {
		Storage struct {
			Files []struct {
				Path     string
				Mode     int
				Contents struct{ Source string }
			}
		}
	}
	if err := json.Unmarshal(c.Spec.Config.Raw, &ignition); err != nil || len(ignition.Storage.Files) != 1 {
		t.Fatalf("Ignition config (%v): %s", err, c.Spec.Config.Raw)
	}
	file := ignition.Storage.Files[0]
	content, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(file.Contents.Source, "data:;base64,"))
	if err != nil || file.Path != "/etc/kubernetes/kubelet.conf" || file.Mode != 0o644 {
		t.Fatalf("file (%v): %+v", err, file)
	}
	return string(content)
}

// What is generated can be rendered: it is a valid MachineConfig that the pool selects.
func TestFoldResultIsSelectedAndRendered(t *testing.T) {
	p := pool()
	p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": "worker"}}
	created := Fold(p, []byte(`{}`), []*v1alpha1.KubeletConfig{config("a", 0, `{"maxPods":1}`)}).MachineConfig
	w := merge.World{Now: start, Pool: p, Configs: []*v1alpha1.MachineConfig{created}}
	v := merge.Prepare(w).Decide(w)
	if diff := cmp.Diff([]string{"99-workers-kubelet-managed"}, v.Sources); diff != "" || v.Create == nil {
		t.Errorf("rendered of (-want +got), creates %v: %+v\n%s", v.Create, v.Condition, diff)
	}
}

func TestMaxPods(t *testing.T) {
	other := config("other", 0, `{"maxPods":9}`)
	other.Spec.MachineConfigPoolSelector.MatchLabels["pool"] = "other"
	for name, tc := range map[string]struct {
		configs []*v1alpha1.KubeletConfig
		want    int64 // 0 for none
	}{
		"none":            {},
		"of another pool": {configs: []*v1alpha1.KubeletConfig{other}},
		"another setting": {configs: []*v1alpha1.KubeletConfig{config("a", 0, `{"serializeImagePulls":false}`)}},
		"one":             {configs: []*v1alpha1.KubeletConfig{config("a", 0, `{"maxPods":50}`)}, want: 50},
		"the last of two": {
			configs: []*v1alpha1.KubeletConfig{config("b", 1, `{"maxPods":60}`), config("a", 2, `{"maxPods":50}`)}, want: 60,
		},
		"removed by a later one":     {configs: []*v1alpha1.KubeletConfig{config("a", 2, `{"maxPods":50}`), config("b", 1, `{"maxPods":null}`)}},
		"0, which a kubelet ignores": {configs: []*v1alpha1.KubeletConfig{config("a", 0, `{"maxPods":0}`)}},
		"one is invalid":             {configs: []*v1alpha1.KubeletConfig{config("a", 2, `{"maxPods":50}`), config("b", 1, `{"maxPods":true}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := MaxPods(pool(), tc.configs); got != tc.want || ok != (tc.want > 0) {
				t.Errorf("got %d, %t; want %d", got, ok, tc.want)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	good, bad := v1alpha1.KubeletConfigPoolStatus{
		Name: "a", MachineConfig: "99-a-kubelet-managed",
	}, v1alpha1.KubeletConfigPoolStatus{Name: "b", Message: "It is bad."}
	for name, tc := range map[string]struct {
		settings string
		pools    []v1alpha1.KubeletConfigPoolStatus
		want     string
	}{
		"in all pools": {
			`{"maxPods":1}`,
			[]v1alpha1.KubeletConfigPoolStatus{good},
			"True Applied: The settings are in the generated MachineConfigs of all selected pools.",
		},
		"not in one": {`{"maxPods":1}`, []v1alpha1.KubeletConfigPoolStatus{bad, good}, "False Invalid: In pool b: It is bad."},
		"of no pool": {
			`{"maxPods":1}`, nil,
			"False SelectsNoPool: spec.machineConfigPoolSelector matches no MachineConfigPool. Label one, or correct the selector.",
		},
		"invalid, and of no pool": {`{"maxPods":true}`, nil, "False Invalid: spec.kubeletConfig.maxPods must be an integer of 32 bits, got true"},
	} {
		t.Run(name, func(t *testing.T) {
			c := config("c", 0, tc.settings)
			c.Status = Status(start, c, tc.pools)
			if got := said(c); got != tc.want {
				t.Errorf("got %s\nwant %s", got, tc.want)
			}
			if c.Status.ObservedGeneration != 3 ||
				!slices.IsSortedFunc(c.Status.Pools, func(a, b v1alpha1.KubeletConfigPoolStatus) int { return strings.Compare(a.Name, b.Name) }) {
				t.Errorf("status %+v", c.Status)
			}
			if again := Status(start.Add(time.Hour), c, tc.pools); !cmp.Equal(c.Status, again) {
				t.Errorf("an hour later: %s", cmp.Diff(c.Status, again))
			}
		})
	}
}

func said(c *v1alpha1.KubeletConfig) string {
	one := c.Status.Conditions[0]
	return fmt.Sprintf("%s %s: %s", one.Status, one.Reason, one.Message)
}

// The table of fields is the list that the lab's module compares with the types of the kubelet.
func TestFields(t *testing.T) {
	want, err := os.ReadFile("testdata/fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	list(&got, "", object(fields))
	slices.Sort(got)
	if diff := cmp.Diff(strings.Fields(string(want)), strings.Fields(strings.Join(got, "\n"))); diff != "" {
		t.Errorf("fields (-testdata +table):\n%s", diff)
	}
}

var scalars = map[scalar]string{
	boolean: "boolean", text: "text", int32s: "int32s", int64s: "int64s", float: "float", duration: "duration", quantity: "quantity",
	instant: "instant", interval: "interval",
}

func list(lines *[]string, path string, k kind) {
	switch k := k.(type) {
	case object:
		for name, inner := range k {
			list(lines, child(path, name), inner)
		}
	case mapOf:
		list(lines, path+"{}", k.of)
	case listOf:
		list(lines, path+"[]", k.of)
	case scalar:
		*lines = append(*lines, path+" "+scalars[k])
	}
}

// The tables of validation name fields that exist.
func TestRulesNameFields(t *testing.T) {
	for _, path := range slices.Concat(slices.Collect(maps.Keys(forbidden)), slices.Collect(maps.Keys(ranges)),
		slices.Collect(maps.Keys(amounts))) {
		var k kind = object(fields)
		for name := range strings.SplitSeq(path, ".") {
			inner, ok := k.(object)
			if !ok || inner[name] == nil {
				t.Errorf("%s is no field", path)
				break
			}
			k = inner[name]
		}
	}
}

// drawSettings draws a few settings with values, zero values among them, and null.
func drawSettings(t *rapid.T) map[string]any {
	settings := map[string]any{}
	for name, values := range map[string][]any{
		"maxPods": {0, 1, 250, nil}, "cpuCFSQuota": {true, false, nil}, "hairpinMode": {"", "none", nil},
		"tlsCipherSuites": {[]any{}, []any{"A"}, nil},
		"evictionHard": {
			nil, map[string]any{}, map[string]any{"memory.available": "1Gi"}, map[string]any{"memory.available": nil, "pid.available": "5%"},
		},
		"logging": {nil, map[string]any{"verbosity": 0}, map[string]any{"options": map[string]any{"json": map[string]any{"splitStream": false}}}},
	} {
		if at := rapid.IntRange(-2, len(values)-1).Draw(t, name); at >= 0 {
			settings[name] = values[at]
		}
	}
	return settings
}

// naive sets the values of a patch one by one.
func naive(result, change map[string]any) {
	for name, value := range change {
		inner, isObject := value.(map[string]any)
		switch {
		case value == nil:
			delete(result, name)
		case isObject:
			below, ok := result[name].(map[string]any)
			if !ok {
				below = map[string]any{}
			}
			naive(below, inner)
			result[name] = below
		default:
			result[name] = value
		}
	}
}

// The order in which KubeletConfigs are passed has no effect; the result equals that of setting all
// values one by one results in; a field is overridden exactly when its value is not in the result
// of all that were applied up to the end.
func TestWorlds(t *testing.T) {
	worlds.Check(t, 10, func(t *rapid.T) {
		want := map[string]any{"apiVersion": apiVersion, "kind": kindName, "port": 10250}
		byDefault := mustEncode(t, map[string]any{"port": 10250})
		var configs []*v1alpha1.KubeletConfig
		for i := range rapid.IntRange(1, 5).Draw(t, "configs") {
			settings := drawSettings(t)
			configs = append(configs, config(fmt.Sprint("c", i), 9-i, string(mustEncode(t, settings))))
			naive(want, settings)
		}
		f := Fold(pool(), byDefault, configs)
		again := Fold(pool(), byDefault, rapid.Permutation(configs).Draw(t, "order"))
		if diff := cmp.Diff(f, again); diff != "" {
			t.Fatalf("in another order:\n%s", diff)
		}
		if f.MachineConfig == nil {
			t.Fatalf("blocked: %+v", f.Pools)
		}
		content := contentOf(t, f.MachineConfig)
		if diff := cmp.Diff(string(mustEncode(t, want)), content); diff != "" {
			t.Errorf("(-naive +folded):\n%s", diff)
		}
		last := configs[len(configs)-1].Name
		if len(f.Pools[last].Overridden) > 0 {
			t.Errorf("nothing is after %s, and it is overridden: %q", last, f.Pools[last].Overridden)
		}
	})
}

func mustEncode(t fatal, value any) []byte {
	t.Helper()
	document, err := json.Marshal(value)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	return document
}

// FuzzFold reads any bytes as settings. It gets the same answer twice, and what is accepted is
// accepted again as the default of a pool.
func FuzzFold(f *testing.F) {
	for _, seed := range []string{
		``, `null`, `{}`, `[]`, `{"maxPods":250}`, `{"maxPods":null}`, `{"evictionHard":{"memory.available":"5%"}}`, `{"evictionHard":null}`,
		`{"cgroupDriver":"x"}`, `{"logging":{"flushFrequency":"5s","vmodule":[{"filePattern":"a","verbosity":1}]}}`,
		`{"memoryThrottlingFactor":1e-1}`, `{"syncFrequency":"1h2m3.5s"}`,
		`{"registerWithTaints":[{"key":"a","effect":"NoSchedule","timeAdded":"2026-01-02T03:04:05Z"}]}`, `{"imageGCLowThresholdPercent":86}`,
		`{"":""}`, `{"systemReserved":{"cpu":"-1"}}`, `{"reservedMemory":[{"numaNode":0,"limits":{"memory":"1Gi"}}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		configs := []*v1alpha1.KubeletConfig{
			config("a", 2, `{"maxPods":1,"evictionHard":{"memory.available":"1Gi"}}`), config("b", 1, string(document)),
		}
		first, second := Fold(pool(), []byte(`{}`), configs), Fold(pool(), []byte(`{}`), configs)
		if diff := cmp.Diff(first, second); diff != "" {
			t.Fatalf("two answers:\n%s", diff)
		}
		if (first.MachineConfig == nil) != first.Blocked {
			t.Fatalf("blocked %t, MachineConfig %v", first.Blocked, first.MachineConfig)
		}
		for _, status := range first.Pools {
			if len(status.Message) > 1024 || len(status.Overridden) > 20 {
				t.Fatalf("status %+v", status)
			}
		}
		if first.Blocked {
			return
		}
		content := contentOf(t, first.MachineConfig)
		if len(content) > MaxSize {
			return
		}
		third := Fold(pool(), []byte(content), []*v1alpha1.KubeletConfig{config("c", 0, `{}`)})
		if third.Blocked || contentOf(t, third.MachineConfig) != content {
			t.Fatalf("as the default: %+v\n%s", third.Pools, content)
		}
	})
}
