package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Object is an object as it is stored: a decoded JSON document. It is never changed.
type Object struct {
	unstructured.Unstructured

	key     types.NamespacedName
	labels  labels.Set
	raw     []byte
	partial func() []byte // as PartialObjectMetadata
	// binary and binaryPartial are raw and partial in protobuf.
	binary, binaryPartial func() ([]byte, error)
}

const partialKind = "PartialObjectMetadata"

// newObject creates an object of a document, which must not be changed any more. On the wire its
// kind is first, as an API server writes it.
func newObject(u *unstructured.Unstructured) (*Object, error) {
	fields := maps.Clone(u.Object)
	delete(fields, "kind")
	delete(fields, "apiVersion")
	raw, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode the object: %w", err)
	}
	raw = append(fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, u.GetKind(), u.GetAPIVersion()), raw[1:]...)
	key := types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}
	o := &Object{Unstructured: *u, key: key, labels: u.GetLabels(), raw: raw}
	o.partial = sync.OnceValue(func() []byte {
		raw, _ := json.Marshal(map[string]any{ // it was encoded before
			"kind": partialKind, "apiVersion": metav1.SchemeGroupVersion.String(), "metadata": o.Object["metadata"],
		})
		return raw
	})
	o.binary = sync.OnceValues(func() ([]byte, error) { return protobufOf(o.raw) })
	o.binaryPartial = sync.OnceValues(func() ([]byte, error) { return protobufOf(o.partial()) })
	return o, nil
}

// bytes is the object on the wire.
func (o *Object) bytes(partial bool) []byte {
	if partial {
		return o.partial()
	}
	return o.raw
}

// inProtobuf is the object on the wire, in protobuf. Errors: it is of no built-in kind.
func (o *Object) inProtobuf(partial bool) ([]byte, error) {
	if partial {
		return o.binaryPartial()
	}
	return o.binary()
}

// selection has the selectors of a list or a watch.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    []fieldTerm
	partial   bool
}

// fieldTerm is one requirement of a field selector.
type fieldTerm struct {
	path  []string
	value string
	not   bool
}

// selects reports whether an object is selected; nil is not.
func (s selection) selects(o *Object) bool {
	if o == nil || s.namespace != "" && o.key.Namespace != s.namespace {
		return false
	}
	for _, term := range s.fields {
		value, _, _ := unstructured.NestedFieldNoCopy(o.Object, term.path...)
		if value == nil {
			value = ""
		}
		if (fmt.Sprint(value) == term.value) == term.not {
			return false
		}
	}
	return s.labels.Empty() || s.labels.Matches(o.labels)
}

func parseFields(selector string) (terms []fieldTerm, err error) {
	if selector == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(selector, ",") {
		path, value, found := strings.Cut(part, "=")
		if !found {
			return nil, fmt.Errorf("field selector %q: expected path=value", selector)
		}
		path, not := strings.CutSuffix(path, "!")
		terms = append(terms, fieldTerm{path: strings.Split(path, "."), value: strings.TrimPrefix(value, "="), not: not})
	}
	return terms, nil
}
