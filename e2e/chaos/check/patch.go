package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// Directives of a strategic merge patch.
const (
	deleteFromList = "$deleteFromPrimitiveList/"
	directive      = "$patch"
)

// gone is the value of a field that a patch removes.
const gone = "null"

// patchedFields returns the value that a patch sets for each field, by its path. An element of a
// list has its own path: a finalizer by its name, a condition by its type. Preconditions are
// left out.
func patchedFields(patch json.RawMessage) map[string]string {
	values := map[string]string{}
	var fields map[string]any
	if err := json.Unmarshal(patch, &fields); err != nil {
		return map[string]string{"": string(patch)} // it succeeded, so it is a patch of another kind
	}
	addFields(values, "", fields)
	delete(values, "/metadata/uid")
	delete(values, "/metadata/resourceVersion")
	return values
}

func addFields(values map[string]string, path string, fields map[string]any) {
	for name, value := range fields {
		switch list, removes := strings.CutPrefix(name, deleteFromList); {
		case removes:
			addList(values, path+"/"+list, value, true)
		case !strings.HasPrefix(name, "$"): // such as the order of a list
			addValue(values, path+"/"+name, value)
		}
	}
}

func addValue(values map[string]string, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		addFields(values, path, v)
	case []any:
		addList(values, path, v, false)
	default:
		values[path] = encoded(v)
	}
}

// addList records for each element of a list that it is added or removed.
func addList(values map[string]string, path string, list any, removed bool) {
	elements, _ := list.([]any)
	for _, element := range elements {
		fields, isObject := element.(map[string]any)
		key := fmt.Sprintf("%s[%v]", path, element)
		if isObject {
			key = fmt.Sprintf("%s[%v]", path, cmp.Or(fields["type"], fields["key"], fields["name"]))
		}
		switch {
		case removed || isObject && fields[directive] == "delete":
			values[key] = gone
		default:
			values[key] = encoded(element)
		}
	}
}

// encoded is a value as text; the same for the same value, since fields are in the order of their
// names.
func encoded(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value) // decoded values can be encoded
	}
	return string(text)
}
