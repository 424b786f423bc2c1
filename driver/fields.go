package driver

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// UnknownFields returns the answer of GetUnknownFields for a provider spec that the driver decodes
// with encoding/json into the type of into. Values whose type decodes itself are known as a whole,
// and a null is no value. What is no JSON object has no fields. Errors: InvalidArgument for more
// than MaxUnknownFields.
func UnknownFields(providerSpec []byte, into any) (GetUnknownFieldsResponse, error) {
	var spec any
	_ = json.Unmarshal(providerSpec, &spec) // nil for what is no JSON: a create is rejected
	found := unknown{}
	found.walk(spec, reflect.TypeOf(into), "")
	if len(found) > MaxUnknownFields {
		return GetUnknownFieldsResponse{}, Errorf(OpFields, InvalidArgument,
			"the provider spec has more than %d fields that the driver does not understand; remove them",
			MaxUnknownFields)
	}
	return GetUnknownFieldsResponse{Fields: slices.Sorted(maps.Keys(found))}, nil
}

// CheckFields returns what UnknownFields does for the type that a driver parses a provider spec
// into, and what the parser rejects where all fields are known. Errors: InvalidArgument.
func CheckFields[Spec any](providerSpec []byte, parse func([]byte) (Spec, error)) (GetUnknownFieldsResponse, error) {
	var into Spec
	resp, err := UnknownFields(providerSpec, into)
	if _, invalid := parse(providerSpec); err == nil && len(resp.Fields) == 0 && invalid != nil {
		err = Errorf(OpFields, InvalidArgument, "%w", invalid)
	}
	return resp, err
}

// unknown are the paths of fields that a type does not have, at most one more than
// MaxUnknownFields.
type unknown map[string]struct{}

// walk adds the fields of a value, which is at a path, that its type does not have. A value of
// another kind than its type has none: a create is rejected.
func (u unknown) walk(value any, of reflect.Type, path string) {
	of = pointedTo(of)
	if reflect.PointerTo(of).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return
	}
	switch content := value.(type) {
	case []any:
		if of.Kind() == reflect.Slice || of.Kind() == reflect.Array {
			for _, element := range content {
				u.walk(element, of.Elem(), path+"[]")
			}
		}
	case map[string]any:
		for key, inner := range content {
			at := below(path, key)
			switch is, known := fieldOf(of, key); {
			case inner == nil:
			case known:
				u.walk(inner, is, at)
			case of.Kind() == reflect.Struct && len(u) <= MaxUnknownFields:
				u[at] = struct{}{}
			}
		}
	}
}

// fieldOf returns the type of what a value of a type has under a key of JSON; known reports whether
// it has the key. As in encoding/json upper and lower case do not matter.
func fieldOf(of reflect.Type, key string) (is reflect.Type, known bool) {
	switch of.Kind() { //nolint:exhaustive // the others have no keys
	case reflect.Map:
		return of.Elem(), true
	case reflect.Struct:
	default:
		return nil, false
	}
	for f := range of.Fields() {
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		if f.Anonymous && name == "" && pointedTo(f.Type).Kind() == reflect.Struct {
			if is, known := fieldOf(pointedTo(f.Type), key); known {
				return is, true
			}
			continue
		}
		if (f.IsExported() || f.Anonymous) && tag != "-" && strings.EqualFold(cmp.Or(name, f.Name), key) {
			return f.Type, true
		}
	}
	return nil, false
}

func pointedTo(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// below returns the path of a key, as it may be shown and compared: at most MaxFieldPath bytes,
// with a question mark for what isFieldPath does not accept.
func below(path, key string) string {
	if path != "" {
		path += "."
	}
	path = strings.ToValidUTF8(path+strings.Map(func(r rune) rune {
		if r == ',' || unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, key), "?")
	if len(path) > MaxFieldPath {
		const more = "…"
		path = strings.ToValidUTF8(path[:MaxFieldPath-len(more)], "") + more
	}
	return path
}

// isFieldPath reports whether a text can be the path of a field: the fleet writes it into
// annotations whose values are lists.
func isFieldPath(text string) bool {
	return text != "" && len(text) <= MaxFieldPath && isID(text) && !strings.Contains(text, ",")
}
