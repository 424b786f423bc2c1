package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// schema is a schema of OpenAPI or of JSON, or a map of schemas by name.
type schema = map[string]any

const (
	// definitionsFile is the file with what several kinds have in common.
	definitionsFile = "_definitions.json"
	// references begin with the first in OpenAPI documents, and with the second in the files that are
	// written.
	openAPIReference, fileReference = "#/components/schemas/", definitionsFile + "#/definitions/"
)

// checked are the keywords that are kept: the others do not decide whether an object is valid, or
// only an API server checks them.
var checked = []string{"type", "enum", "required"}

// extract returns the files with the schemas of all kinds, by name. documents are the schemas of
// OpenAPI documents, by the name of the document. Errors: a kind that its document does not have.
func extract(documents map[string]schema) (map[string]schema, error) {
	files, definitions := map[string]schema{}, schema{}
	for _, k := range kinds {
		schemas := documents[k.document()]
		name, err := definitionOf(k, schemas)
		if err != nil {
			return nil, err
		}
		files[k.file()] = schema{"$ref": fileReference + name}
		collect(name, schemas, definitions)
	}
	files[definitionsFile] = schema{"definitions": definitions}
	return files, nil
}

// definitionOf returns the name of the schema of a kind.
func definitionOf(k kind, schemas schema) (string, error) {
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		s, _ := schemas[name].(schema)
		for _, gvk := range listOf(s["x-kubernetes-group-version-kind"]) {
			if gvk["group"] == k.group && gvk["version"] == k.version && gvk["kind"] == k.name {
				return name, nil
			}
		}
	}
	return "", fmt.Errorf("expected a schema of %s in %s, found none; this version of Kubernetes does not have the kind", k, k.document())
}

// collect adds a schema and all that it refers to.
func collect(name string, schemas, definitions schema) {
	if _, done := definitions[name]; done {
		return
	}
	s, _ := schemas[name].(schema)
	definitions[name] = nil // a schema may refer to itself
	definitions[name] = strict(s, func(other string) { collect(other, schemas, definitions) })
}

// strict returns a JSON schema that accepts what an OpenAPI schema accepts, but no field that it
// does not have. refer is called for each schema that it refers to.
func strict(s schema, refer func(name string)) schema {
	result := schema{}
	for _, keyword := range checked {
		if value, ok := s[keyword]; ok {
			result[keyword] = value
		}
	}
	if reference, ok := s["$ref"].(string); ok {
		name := strings.TrimPrefix(reference, openAPIReference)
		refer(name)
		result["$ref"] = "#/definitions/" + name
	}
	for _, keyword := range []string{"items", "additionalProperties"} {
		if of, ok := s[keyword].(schema); ok {
			result[keyword] = strict(of, refer)
		}
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
		var all []schema
		for _, of := range listOf(s[keyword]) {
			all = append(all, strict(of, refer))
		}
		if all != nil {
			result[keyword] = all
		}
	}
	if properties, ok := s["properties"].(schema); ok {
		fields := schema{}
		for name, of := range properties {
			of, _ := of.(schema)
			fields[name] = strict(of, refer)
		}
		result["properties"] = fields
		result["additionalProperties"] = false
	}
	return result
}

// listOf returns the schemas of a list.
func listOf(list any) (all []schema) {
	items, _ := list.([]any)
	for _, item := range items {
		if s, ok := item.(schema); ok {
			all = append(all, s)
		}
	}
	return all
}
