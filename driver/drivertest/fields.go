package drivertest

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// unknownField is a field that no provider spec has.
const unknownField = "conformanceEncryption"

// unknownFields returns what GetUnknownFields returns for the class with another provider spec,
// with sorted fields. It skips the test if the driver has no answer.
func (s *suite) unknownFields(spec string) driver.GetUnknownFieldsResponse {
	s.t.Helper()
	ctx, cancel := s.bounded()
	defer cancel()
	target := s.withSpec(s.machine(), spec)
	defer s.unchanged(target)()
	resp, err := s.Driver.GetUnknownFields(ctx, driver.GetUnknownFieldsRequest{Class: target.Class})
	switch code := s.check(driver.OpFields, err); code {
	case driver.OK:
	case driver.Unimplemented:
		s.t.Skip("the driver does not report which fields it ignores")
	default:
		s.t.Fatalf("GetUnknownFields: code %v, want OK", code)
	}
	slices.Sort(resp.Fields)
	return resp
}

// testUnknownFields adds a field to each object of the provider spec. Of an object with texts only
// it is not known whether it may have any keys.
func testUnknownFields(s *suite) {
	if got := s.unknownFields(string(s.Class.ProviderSpec.Raw)).Fields; len(got) > 0 {
		s.t.Errorf("GetUnknownFields reports %q of the class of the Env; expected one whose fields are all used", got)
	}
	spec := map[string]any{}
	if err := json.Unmarshal(s.Class.ProviderSpec.Raw, &spec); len(s.Class.ProviderSpec.Raw) > 0 && err != nil {
		s.t.Skipf("the provider spec of the class is no object: %v", err)
	}
	want := map[string]bool{}
	addUnknown(spec, "", want)
	spec[unknownField], want[unknownField] = true, true
	raw, err := json.Marshal(spec)
	if err != nil {
		s.t.Fatal(err)
	}
	got := s.unknownFields(string(raw))
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), got.Fields); diff != "" {
		s.t.Errorf("GetUnknownFields for %s (-want +got):\n%s", raw, diff)
	}
	ctx, cancel := s.bounded()
	defer cancel()
	_, err = s.Driver.CreateMachine(ctx, driver.CreateMachineRequest{Target: s.withSpec(s.machine(), string(raw)), UserData: s.UserData})
	if code := s.check(driver.OpCreate, err); got.Refused != (code == driver.InvalidArgument) {
		s.t.Errorf("CreateMachine for %s: code %v, and GetUnknownFields answers with Refused %t", raw, code, got.Refused)
	}
}

// addUnknown adds the field to a value, and to those in it, and notes the paths.
func addUnknown(value any, path string, paths map[string]bool) {
	switch content := value.(type) {
	case []any:
		for _, element := range content {
			addUnknown(element, path+"[]", paths)
		}
	case map[string]any:
		texts := true
		for key, inner := range maps.Clone(content) {
			_, isText := inner.(string)
			texts = texts && isText
			at := key
			if path != "" {
				at = path + "." + key
			}
			addUnknown(inner, at, paths)
		}
		if path != "" && !texts {
			content[unknownField], paths[path+"."+unknownField] = true, true
		}
	}
}
