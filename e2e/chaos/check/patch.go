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

// gone is what a patch says of a field that it removes.
const gone = "null"

// sayings are what a patch says of each field, by its path. An element of a list has a path of its own: a name among
// finalizers, a condition by its type. What says which version of the object is meant is no field of it.
func sayings(patch json.RawMessage) map[string]string {
	said := map[string]string{}
	var fields map[string]any
	if err := json.Unmarshal(patch, &fields); err != nil {
		return map[string]string{"": string(patch)} // it went through, so it is a patch of another kind
	}
	sayFields(said, "", fields)
	delete(said, "/metadata/uid")
	delete(said, "/metadata/resourceVersion")
	return said
}

func sayFields(said map[string]string, path string, fields map[string]any) {
	for name, value := range fields {
		switch list, removes := strings.CutPrefix(name, deleteFromList); {
		case removes:
			sayList(said, path+"/"+list, value, true)
		case !strings.HasPrefix(name, "$"): // such as the order of a list
			say(said, path+"/"+name, value)
		}
	}
}

func say(said map[string]string, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		sayFields(said, path, v)
	case []any:
		sayList(said, path, v, false)
	default:
		said[path] = encoded(v)
	}
}

// sayList says of each element of a list that it is in it, or is not any more.
func sayList(said map[string]string, path string, list any, removed bool) {
	elements, _ := list.([]any)
	for _, element := range elements {
		fields, isObject := element.(map[string]any)
		key := fmt.Sprintf("%s[%v]", path, element)
		if isObject {
			key = fmt.Sprintf("%s[%v]", path, cmp.Or(fields["type"], fields["key"], fields["name"]))
		}
		switch {
		case removed || isObject && fields[directive] == "delete":
			said[key] = gone
		default:
			said[key] = encoded(element)
		}
	}
}

// encoded is a value as text; the same for the same value, since fields are in the order of their names.
func encoded(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value) // what was decoded can be encoded
	}
	return string(text)
}
