package decode

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// whole is the decoder of answers and of the objects of a watch, as a client has it.
func whole(tb testing.TB) runtime.Decoder {
	tb.Helper()
	config := Config(&rest.Config{})
	decoder, err := runtime.NewClientNegotiator(config.NegotiatedSerializer, *config.GroupVersion).Decoder(runtime.ContentTypeJSON, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return decoder
}

func machine(name, spec string) string {
	return `{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"Machine","metadata":{"namespace":"n","name":"` + name +
		`","uid":"u-` + name + `","resourceVersion":"7","labels":{"a":"b"}},"spec":` + spec + `}`
}

func machines(items ...string) string {
	return `{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"MachineList","metadata":{"resourceVersion":"9","continue":"next","remainingItemCount":4},"items":[` +
		strings.Join(items, ",") + `]}`
}

const good, bad = `{"providerID":"vm"}`, `{"providerID":"vm","drainTimeout":"soon"}`

func TestItemsThatDecodeAreListedNextToOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		items                  []string
		decoded, undecodable   []string
		failsAsAWhole, noItems bool
	}{
		"all decode": {items: []string{machine("a", good), machine("b", good)}, decoded: []string{"a", "b"}},
		"one does not": {
			items: []string{machine("a", good), machine("b", bad), machine("c", good)}, decoded: []string{"a", "c"}, undecodable: []string{"b"},
		},
		"none does": {items: []string{machine("a", bad), machine("b", bad)}, undecodable: []string{"a", "b"}},
		"items without kind": {items: []string{
			strings.Replace(machine("a", good), `"kind":"Machine",`, "", 1), strings.Replace(machine("b", bad), `"kind":"Machine",`, "", 1),
		}, decoded: []string{"a"}, undecodable: []string{"b"}},
		"metadata that does not": {
			items: []string{machine("a", good), strings.Replace(machine("b", good), `"labels":{`, `"labels":[{`, 1)}, failsAsAWhole: true,
		},
		"an item without a name":     {items: []string{machine("a", good), machine("", bad)}, failsAsAWhole: true},
		"an item that is no object":  {items: []string{machine("a", good), `7`}, failsAsAWhole: true},
		"an item that is cut short":  {items: []string{machine("a", good), `{"kind":`}, failsAsAWhole: true},
		"a list that has no machine": {},
	} {
		t.Run(name, func(t *testing.T) {
			list := &v1alpha1.MachineList{}
			_, _, err := whole(t).Decode([]byte(machines(tc.items...)), nil, list)
			failures, other := Missing(err)
			if tc.failsAsAWhole {
				if other == nil {
					t.Fatalf("decoded %d items and %d failures, want an error", len(list.Items), len(failures))
				}
				return
			}
			var decoded, undecodable []string
			for _, m := range list.Items {
				decoded = append(decoded, m.Name)
			}
			for _, f := range failures {
				undecodable = append(undecodable, f.Name)
				if f.Namespace != "n" || string(f.UID) != "u-"+f.Name || f.ResourceVersion != "7" || f.Labels["a"] != "b" || f.Kind != "Machine" {
					t.Errorf("metadata of %s: %+v", f.Name, f.PartialObjectMetadata)
				}
			}
			if other != nil || cmp.Diff(tc.decoded, decoded) != "" || cmp.Diff(tc.undecodable, undecodable) != "" {
				t.Errorf("decoded %v, undecodable %v (%v), want %v and %v", decoded, undecodable, other, tc.decoded, tc.undecodable)
			}
			if list.ResourceVersion != "9" || list.Continue != "next" || list.RemainingItemCount == nil || *list.RemainingItemCount != 4 {
				t.Errorf("metadata of the list: %+v", list.ListMeta)
			}
		})
	}
}

func TestErrorOfAnUndecodableObjectHasItsMetadata(t *testing.T) {
	_, _, err := whole(t).Decode([]byte(machine("m", bad)), nil, &v1alpha1.Machine{})
	f, ok := FailureOf(fmt.Errorf("read it: %w", err))
	if !ok || f.Name != "m" || f.UID != "u-m" {
		t.Fatalf("got %v (%v), want a failure of machine m", err, f)
	}
	if want := `Machine n/m cannot be decoded: spec.drainTimeout: time: invalid duration "soon"`; err.Error() != want {
		t.Errorf("message %q, want %q", err, want)
	}
	var part struct {
		Spec struct {
			ProviderID string `json:"providerID"`
		} `json:"spec"`
	}
	if err := f.Into(&part); err != nil || part.Spec.ProviderID != "vm" {
		t.Errorf("read %+v (%v), want the provider ID", part, err)
	}
	if small := f.Small(); small.Into(&part) == nil || small.UID != "u-m" || small.Cause != f.Cause {
		t.Errorf("small: %+v, want no content", small)
	}
}

func TestWatchDeliversUndecodableObjectsAsFailures(t *testing.T) {
	obj, _, err := whole(t).Decode([]byte(machine("m", bad)), nil, nil)
	f, ok := obj.(*Failure)
	if err != nil || !ok || f.Name != "m" || f.ResourceVersion != "7" {
		t.Errorf("got %v (%v), want a failure of machine m", obj, err)
	}
	obj, _, err = whole(t).Decode([]byte(machine("m", good)), nil, nil)
	if m, ok := obj.(*v1alpha1.Machine); err != nil || !ok || m.Spec.ProviderID != "vm" {
		t.Errorf("got %v (%v), want machine m", obj, err)
	}
	status := `{"apiVersion":"v1","kind":"Status","status":"Failure","code":410,"reason":"Expired"}`
	obj, _, err = whole(t).Decode([]byte(status), nil, nil)
	if s, ok := obj.(*metav1.Status); err != nil || !ok || s.Code != 410 {
		t.Errorf("got %v (%v), want the status", obj, err)
	}
}

// Objects of other APIs fail as in client-go.
func TestDecodeOfAnotherAPIFails(t *testing.T) {
	for _, text := range []string{
		"", "{", "7", `{"apiVersion":"v1","kind":"Status","code":"many"}`,
		`{"apiVersion":"v1","kind":"PodList","items":[]}`, `{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"Other","metadata":{"name":"x"}`,
	} {
		if obj, _, err := whole(t).Decode([]byte(text), nil, nil); err == nil {
			t.Errorf("%q: got %v, want an error", text, obj)
		}
	}
}

func TestExplainNamesUndecodableFields(t *testing.T) {
	for name, tc := range map[string]struct{ kind, content, want string }{
		"a duration": {"Machine", `{"spec":{"drainTimeout":"soon"}}`, `spec.drainTimeout: time: invalid duration "soon"`},
		"two": {
			"Machine", `{"spec":{"drainTimeout":"soon","healthTimeout":"later"}}`,
			`spec.drainTimeout: time: invalid duration "soon"; spec.healthTimeout: time: invalid duration "later"`,
		},
		"another JSON type": {"MachineDeployment", `{"spec":{"replicas":"three"}}`, `spec.replicas: json: cannot unmarshal string`},
		"too large":         {"MachineSet", `{"spec":{"replicas":9999999999}}`, `spec.replicas: json: cannot unmarshal number`},
		"in a list": {
			"Machine", `{"spec":{"nodeTemplate":{"spec":{"taints":[{"key":"a","effect":"NoSchedule"},{"key":7}]}}}}`,
			`spec.nodeTemplate.spec.taints[1].key: json: cannot unmarshal number`,
		},
		"a quantity": {
			"MachineClass", `{"nodeTemplate":{"capacity":{"cpu":"many","memory":"1Gi"}}}`, `nodeTemplate.capacity.cpu: quantities must match`,
		},
		"a list instead of an object": {"Machine", `{"spec":[]}`, `spec: json: cannot unmarshal array`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := explain([]byte(tc.content), tc.kind, fmt.Errorf("unexplained")); !strings.HasPrefix(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Every answer of an API server decodes as client-go decodes it, or each of its items is an object
// or a failure.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		machines(), machines(machine("a", good)), machines(machine("a", good), machine("b", bad)), machine("a", bad), machine("a", good),
		machines(`{}`), machines(`null`), `{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"List"}`, `[]`,
		`{"kind":"Status","apiVersion":"v1"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list := &v1alpha1.MachineList{}
		_, _, err := whole(t).Decode([]byte(text), nil, list)
		failures, other := Missing(err)
		if other == nil && len(failures) > 0 {
			var has struct {
				Kind  string            `json:"kind"`
				Items []json.RawMessage `json:"items"`
			}
			if err := json.Unmarshal([]byte(text), &has); err != nil ||
				has.Kind == "MachineList" && len(has.Items) != len(list.Items)+len(failures) {
				t.Errorf("%d items (%v): decoded %d, and %d failures", len(has.Items), err, len(list.Items), len(failures))
			}
		}
		if obj, _, err := whole(t).Decode([]byte(text), nil, nil); err == nil {
			if f, failed := obj.(*Failure); failed && (f.Name == "" || f.Cause == "") {
				t.Errorf("a failure without name or cause: %+v", f)
			}
		}
	})
}

func TestKindsAreFoundWhereverTheyAre(t *testing.T) {
	want := v1alpha1.SchemeGroupVersion.WithKind("Machine")
	for name, data := range map[string]string{
		"first":      machine("a", good),
		"kind first": `{"kind":"Machine","apiVersion":"machine.sapcloud.io/v1alpha1","metadata":{}}`,
		"kind alone": `{"kind":"Machine","metadata":{},"apiVersion":"machine.sapcloud.io/v1alpha1"}`,
		"last":       `{"metadata":{"apiVersion":"v1","kind":"Pod"},"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"Machine"}`,
		"indented":   "{\n\"apiVersion\": \"machine.sapcloud.io/v1alpha1\",\n\"kind\": \"Machine\"}",
		"escaped":    `{"apiVersion":"machine.sapcloud.io\/v1alpha1","kind":"Mach\u0069ne"}`,
	} {
		if got, err := (firstFields{}).Interpret([]byte(data)); err != nil || *got != want {
			t.Errorf("%s: got %v and error %v, want %v", name, got, err, want)
		}
	}
	for _, data := range []string{`{"apiVersion":"a/b/c","kind":"Machine"}`, `{"apiVersion":"v1`, ``} {
		if got, err := (firstFields{}).Interpret([]byte(data)); err == nil {
			t.Errorf("%q: got %v, want an error", data, got)
		}
	}
}
