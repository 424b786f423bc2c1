package simulated

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

func TestParseProviderSpec(t *testing.T) {
	full := ProviderSpec{
		Region: "sim-1", Zone: "sim-1a", InstanceType: "standard-4", Image: "linux-1", Network: "default",
		Tags: map[string]string{"a": "b"}, Boot: cloudapi.BootKubelet, DataVolumes: []cloudapi.DataVolume{{Name: "data", SizeGiB: 5}},
		SourceDestCheck: new(false),
	}
	raw, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]ProviderSpec{"": {}, "  ": {}, "null": {}, "{}": {}, string(raw): full} {
		got, err := ParseProviderSpec([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	// Messages have to name all fields.
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	for field := range fields {
		if !strings.Contains(specFields, field) {
			t.Errorf("messages do not name the field %s", field)
		}
	}
}

func TestBadProviderSpecs(t *testing.T) {
	for text, want := range map[string]string{
		`{"machineType": "large"}`:           `unknown field "machineType"`,
		`{"zone": "a", "zone": "b"}`:         `duplicate field "zone"`,
		`{"Zone": "a"}`:                      `unknown field "Zone"`,
		`{"zone": 5}`:                        "zone",
		`{"zone": "a"`:                       "providerSpec",
		`{} {}`:                              "providerSpec",
		`[]`:                                 "no object",
		`"x"`:                                "no object",
		`{"boot": "magic"}`:                  `"magic"`,
		`{"tags": {"machine-uid": "x"}}`:     "machine-uid",
		`{"tags": {"a=b": "x"}}`:             "a=b",
		`{"tags": {"": "x"}}`:                "tags",
		`{"dataVolumes": [{"name": "d"}]}`:   "dataVolumes[0]",
		`{"dataVolumes": [{"sizeGiB": 1}]}`:  "dataVolumes[0]",
		`{"dataVolumes": [{"size": "1Gi"}]}`: "dataVolumes[0].size",
	} {
		if _, err := ParseProviderSpec([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %s", text, err, want)
		}
		class := &v1alpha1.MachineClass{ProviderSpec: runtime.RawExtension{Raw: []byte(text)}}
		unknown, err := (*Driver)(nil).GetUnknownFields(t.Context(), driver.GetUnknownFieldsRequest{Class: class})
		if unknown.Refused != (len(unknown.Fields) > 0) || len(unknown.Fields) == 0 && driver.CodeOf(err) != driver.InvalidArgument {
			t.Errorf("%s: want refused fields or InvalidArgument, got %+v, %v", text, unknown, err)
		}
	}
}

func FuzzParseProviderSpec(f *testing.F) {
	for _, seed := range []string{
		"", "null", "{}", `{"zone": "a", "tags": {"a": "b"}, "dataVolumes": [{"name": "d", "sizeGiB": 1}]}`,
		`{"boot": "kubelet", "sourceDestCheck": false}`, `[`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		spec, err := ParseProviderSpec(raw)
		if err != nil {
			return
		}
		again, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := ParseProviderSpec(again); err != nil || !cmp.Equal(spec, second) {
			if len(spec.Tags)+len(spec.DataVolumes) > 0 || err != nil { // Empty maps and lists are left out when written.
				t.Errorf("%s reads as %+v, then as %+v, %v", raw, spec, second, err)
			}
		}
	})
}
