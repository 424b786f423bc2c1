package fold

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// kind is the type of a value. A JSON document is compared with it: the Go types of the kubelet
// would bring in its metrics and traces, and those of one version only.
type kind interface {
	// check returns what is wrong with a value, with its path, or "".
	check(path string, value any) string
}

// object has its own fields.
type object map[string]kind

func (o object) check(path string, value any) string {
	fields, ok := value.(map[string]any)
	if !ok {
		return expected(path, "an object", value)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		inner, known := o[name]
		if !known {
			return fmt.Sprintf("%s is no field of a KubeletConfiguration", child(path, short(name)))
		}
		if fields[name] == nil {
			continue // removes the value
		}
		if problem := inner.check(child(path, name), fields[name]); problem != "" {
			return problem
		}
	}
	return ""
}

// mapOf is an object with any keys.
type mapOf struct{ of kind }

// listOf is a list.
type listOf struct{ of kind }

func (m mapOf) check(path string, value any) string {
	fields, ok := value.(map[string]any)
	if !ok {
		return expected(path, "an object", value)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if fields[name] == nil {
			continue
		}
		if problem := m.of.check(path+"["+short(name)+"]", fields[name]); problem != "" {
			return problem
		}
	}
	return ""
}

func (l listOf) check(path string, value any) string {
	items, ok := value.([]any)
	if !ok {
		return expected(path, "a list", value)
	}
	for i, item := range items {
		if problem := l.of.check(fmt.Sprintf("%s[%d]", path, i), item); problem != "" {
			return problem
		}
	}
	return ""
}

// scalar is a value without parts.
type scalar string

const (
	boolean  scalar = "true or false"
	text     scalar = "a string"
	int32s   scalar = "an integer of 32 bits"
	int64s   scalar = "an integer"
	float    scalar = "a number"
	duration scalar = `a duration such as "10s"`
	quantity scalar = `a quantity such as "500Mi"`
	instant  scalar = "a time"
	interval scalar = `a duration such as "5s", or nanoseconds`
)

func (s scalar) check(path string, value any) string {
	var ok bool
	switch s {
	case boolean:
		_, ok = value.(bool)
	case text:
		_, ok = value.(string)
	case int32s, int64s, float:
		number, isNumber := value.(json.Number)
		ok = isNumber && s.parses(number.String())
	case interval:
		ok = duration.check(path, value) == "" || int64s.check(path, value) == ""
	case duration, quantity, instant:
		written, isText := value.(string)
		ok = isText && s.parses(written)
	}
	if !ok {
		return expected(path, string(s), value)
	}
	return ""
}

// parses reports whether a text is a value of the type.
func (s scalar) parses(written string) bool {
	var err error
	switch s {
	case int32s:
		_, err = strconv.ParseInt(written, 10, 32)
	case int64s:
		_, err = strconv.ParseInt(written, 10, 64)
	case float:
		_, err = strconv.ParseFloat(written, 64)
	case duration:
		_, err = time.ParseDuration(written)
	case quantity:
		_, err = resource.ParseQuantity(written)
	case instant:
		_, err = time.Parse(time.RFC3339, written)
	case boolean, text, interval:
	}
	return err == nil
}

// expected returns the message for a value of another type.
func expected(path, want string, value any) string {
	got := "null"
	switch value := value.(type) {
	case bool:
		got = strconv.FormatBool(value)
	case json.Number:
		got = short(value.String())
	case string:
		got = strconv.Quote(short(value))
	case []any:
		got = "a list"
	case map[string]any:
		got = "an object"
	}
	return fmt.Sprintf("%s must be %s, got %s", strings.TrimPrefix(path, "."), want, got)
}

func child(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
