package driver

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

type inlined struct{ Shared string }

// itself decodes itself.
type itself struct{ Known string }

func (*itself) UnmarshalJSON([]byte) error { return nil }

func TestUnknownFields(t *testing.T) {
	type disk struct {
		Size int `json:"size"`
	}
	type spec struct {
		inlined
		*disk      `json:"named"`
		Disk       *disk `json:"disk,omitempty"`
		Disks      []disk
		ByName     map[string]disk
		Tags       map[string]string `json:"tags"`
		Any        any               `json:"any"`
		Itself     itself            `json:"itself"`
		At         time.Time         `json:"at"`
		Skipped    string            `json:"-"`
		unexported string            //nolint:unused // as fields of a type may be
	}
	long := strings.Repeat("k", MaxFieldPath)
	for name, tc := range map[string]struct {
		raw  string
		want []string
	}{
		"nothing":   {``, nil},
		"no JSON":   {`{`, nil},
		"no object": {`["a"]`, nil},
		"known fields": {
			`{"Shared": "", "named": {"size": 1}, "disk": {"size": 1}, "disks": [{"size": 1}], "tags": {"a": "b"}}`, nil,
		},
		"known fields in another case":      {`{"DISK": {"SIZE": 1}}`, nil},
		"fields at the top":                 {`{"z": 1, "a": {"b": 1}}`, []string{"a", "z"}},
		"fields of an object":               {`{"disk": {"size": 1, "encrypted": true}}`, []string{"disk.encrypted"}},
		"a field of several elements":       {`{"disks": [{"size": 1}, {"a": 1}, {"a": 2, "b": 3}]}`, []string{"disks[].a", "disks[].b"}},
		"a field of a value of a map":       {`{"byName": {"x": {"a": 1}}}`, []string{"byName.x.a"}},
		"fields of what is inlined":         {`{"inlined": {"Shared": ""}}`, []string{"inlined"}},
		"fields of what is named":           {`{"size": 1, "named": {"a": 1}}`, []string{"named.a", "size"}},
		"a value that is null":              {`{"a": null, "disk": {"b": null}}`, nil},
		"a value of any type":               {`{"any": {"a": {"b": 1}}}`, nil},
		"a value that decodes itself":       {`{"itself": {"a": 1}, "at": {"a": 1}}`, nil},
		"a value of another type":           {`{"disk": [{"a": 1}], "disks": {"a": 1}, "tags": "a"}`, nil},
		"a field that is skipped":           {`{"Skipped": ""}`, []string{"Skipped"}},
		"a field that is not exported":      {`{"unexported": ""}`, []string{"unexported"}},
		"a name that breaks lists or lines": {`{"a,b c\n\u202e": 1}`, []string{"a?b?c??"}},
		"a long name":                       {`{"` + long + `k": 1}`, []string{long[:MaxFieldPath-3] + "…"}},
	} {
		got, err := UnknownFields([]byte(tc.raw), spec{})
		if err != nil || !slices.Equal(got.Fields, tc.want) {
			t.Errorf("%s: %q (%v), want %q", name, got.Fields, err, tc.want)
		}
		if got.Fields != nil && !slices.ContainsFunc(got.Fields, isFieldPath) {
			t.Errorf("%s: %q are no paths", name, got.Fields)
		}
	}
}

func TestMoreUnknownFieldsThanAreReportedAreAnError(t *testing.T) {
	fields := map[string]int{}
	for i := range MaxUnknownFields {
		fields[fmt.Sprint("field", i)] = i
	}
	for _, want := range []Code{OK, InvalidArgument} {
		raw, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := UnknownFields(raw, struct{}{}); CodeOf(err) != want {
			t.Errorf("%d fields: %v, want %v", len(fields), err, want)
		}
		fields["encrypted"] = 1
	}
}
