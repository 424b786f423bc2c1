package decode

import (
	"bytes"
	"reflect"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/scheme"
)

// fast decodes the objects and lists of the machine API in one pass over their bytes, and leaves
// out their managed fields, which are half of them and which no reader of these kinds uses. What it
// does not decode, and everything else, is decoded by the Serializer of client-go: so errors, and
// what is an error, are those of client-go.
type fast struct {
	runtime.Serializer

	kinds   firstFields
	options json.Options
}

// newFast returns one that accepts what client-go's decoder accepts.
func newFast() *fast {
	return &fast{Serializer: serializer(firstFields{}), options: json.JoinOptions(
		json.MatchCaseInsensitiveNames(false), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true),
		json.WithUnmarshalers(json.JoinUnmarshalers(json.UnmarshalFromFunc(skipManagedFields), json.UnmarshalFromFunc(decodeTime))),
	)}
}

func skipManagedFields(d *jsontext.Decoder, _ *[]metav1.ManagedFieldsEntry) error {
	return d.SkipValue()
}

// decodeTime is metav1.Time.UnmarshalJSON without a second decoder.
func decodeTime(d *jsontext.Decoder, into *metav1.Time) error {
	value, err := d.ReadValue()
	if err != nil {
		return err
	}
	text, isText := bytes.CutPrefix(value, []byte(`"`))
	if !isText {
		return into.UnmarshalJSON(value)
	}
	t, err := time.Parse(time.RFC3339, string(bytes.TrimSuffix(text, []byte(`"`))))
	into.Time = t.Local()
	return err
}

// Decode is runtime.Decoder's.
func (f *fast) Decode(data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	kind, err := f.kinds.Interpret(data)
	if err != nil || kind.Group != v1alpha1.GroupName {
		return f.Serializer.Decode(data, gvk, into)
	}
	obj, err := scheme.Scheme.New(*kind)
	if err != nil || into != nil && reflect.TypeOf(obj) != reflect.TypeOf(into) || json.Unmarshal(data, obj, f.options) != nil {
		return f.Serializer.Decode(data, gvk, into)
	}
	if into != nil {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(obj).Elem())
		obj = into
	}
	return obj, kind, nil
}
