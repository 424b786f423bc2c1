package decode

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/json"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/scheme"
)

// mostFields bounds the fields of one object that are named.
const mostFields = 3

// explain names the fields of an object that do not decode, each with its error. Types that decode
// themselves, as durations and quantities do, name no field. So each field is decoded in an object
// that has no other field.
func explain(data []byte, kind string, cause error) string {
	var content map[string]any
	if json.Unmarshal(data, &content) != nil {
		return cause.Error()
	}
	delete(content, "metadata") // it has been decoded
	p := probe{kind: kind}
	p.search("", content, func(value any) any { return value })
	if len(p.found) == 0 {
		return cause.Error()
	}
	return strings.Join(p.found, "; ")
}

// probe searches an object for fields that do not decode.
type probe struct {
	kind  string
	found []string // "path: error"
}

// search reports whether a value alone keeps the object from being decoded, and records the fields
// in it that do. whole puts the value into an object that has nothing else.
func (p *probe) search(path string, value any, whole func(any) any) bool {
	err := p.decode(whole(value))
	if err == nil || len(p.found) >= mostFields {
		return err != nil
	}
	deeper := false
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			in := func(inner any) any { return whole(map[string]any{key: inner}) }
			deeper = p.search(strings.TrimPrefix(path+"."+key, "."), v[key], in) || deeper
		}
	case []any:
		for i, item := range v {
			in := func(inner any) any { return whole([]any{inner}) }
			deeper = p.search(path+"["+strconv.Itoa(i)+"]", item, in) || deeper
		}
	}
	if !deeper {
		p.found = append(p.found, path+": "+err.Error())
	}
	return true
}

// decode decodes a value as an object of the kind.
func (p *probe) decode(value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	obj, err := scheme.Scheme.New(v1alpha1.SchemeGroupVersion.WithKind(p.kind))
	if err != nil {
		return err
	}
	return json.Unmarshal(data, obj)
}
