package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStrict(t *testing.T) {
	for name, c := range map[string]struct {
		openAPI, want string
		refers        []string
	}{
		"a field that is not declared is invalid": {
			openAPI: `{"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "enum": ["x"], "description": "d", "default": "x"}}}`,
			want:    `{"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "enum": ["x"]}}, "additionalProperties": false}`,
		},
		"a map has any keys": {
			openAPI: `{"type": "object", "additionalProperties": {"type": "string", "format": "byte"}}`,
			want:    `{"type": "object", "additionalProperties": {"type": "string"}}`,
		},
		"an object without declared fields has any": {
			openAPI: `{"type": "object", "description": "d"}`,
			want:    `{"type": "object"}`,
		},
		"references": {
			openAPI: `{"type": "array", "items": {"allOf": [{"$ref": "#/components/schemas/io.k8s.Item"}], "default": {}}}`,
			want:    `{"type": "array", "items": {"allOf": [{"$ref": "#/definitions/io.k8s.Item"}]}}`,
			refers:  []string{"io.k8s.Item"},
		},
		"a number or a string": {
			openAPI: `{"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}`,
			want:    `{"oneOf": [{"type": "integer"}, {"type": "string"}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var refers []string
			got := strict(parse(t, c.openAPI), func(name string) { refers = append(refers, name) })
			if diff := cmp.Diff(parse(t, c.want), roundTrip(t, got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(c.refers, refers); diff != "" {
				t.Errorf("references: -want +got:\n%s", diff)
			}
		})
	}
}

// TestExtract: each kind has a file, what they refer to is in one of definitions, also where it
// refers to itself, and nothing else is.
func TestExtract(t *testing.T) {
	documents := map[string]schema{}
	for _, k := range kinds {
		if documents[k.document()] == nil {
			documents[k.document()] = schema{"Meta": parse(t, `{"type": "object"}`), "Unused": parse(t, `{"type": "object"}`)}
		}
		documents[k.document()][k.name] = parse(t, `{
			"properties": {"meta": {"$ref": "#/components/schemas/Meta"}, "self": {"$ref": "#/components/schemas/`+k.name+`"}},
			"x-kubernetes-group-version-kind": [{"group": "`+k.group+`", "version": "`+k.version+`", "kind": "`+k.name+`"}]
		}`)
	}
	files, err := extract(documents)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, k := range kinds {
		want = append(want, k.name)
		if reference := files[k.file()]["$ref"]; reference != "_definitions.json#/definitions/"+k.name {
			t.Errorf("%s: want a reference to its definition, got %v", k.file(), reference)
		}
	}
	definitions, _ := files[definitionsFile]["definitions"].(schema)
	if diff := cmp.Diff(slices.Sorted(slices.Values(append(want, "Meta"))), slices.Sorted(maps.Keys(definitions))); diff != "" {
		t.Errorf("definitions: -want +got:\n%s", diff)
	}

	delete(documents["apis__policy__v1_openapi.json"], "PodDisruptionBudget")
	if _, err := extract(documents); err == nil || !strings.Contains(err.Error(), "policy/v1 PodDisruptionBudget") {
		t.Errorf("without a kind: want an error that names it, got %v", err)
	}
}

func TestKindFileIsWhatKubeconformLooksFor(t *testing.T) {
	for k, want := range map[kind]string{
		{"", "v1", "Service"}:                       "service-v1.json",
		{"rbac.authorization.k8s.io", "v1", "Role"}: "role-rbac-v1.json",
		{"policy", "v1", "PodDisruptionBudget"}:     "poddisruptionbudget-policy-v1.json",
	} {
		if got := k.file(); got != want {
			t.Errorf("%s: want %s, got %s", k, want, got)
		}
	}
}

func parse(t *testing.T, text string) (s schema) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// roundTrip returns the schema as it is read from a file.
func roundTrip(t *testing.T, s schema) schema {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}
