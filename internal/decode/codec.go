package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializerjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/rest"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/scheme"
)

// Config returns the configuration of a REST client of the machine API that decodes as the package
// comment describes.
func Config(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	version := v1alpha1.SchemeGroupVersion
	c.APIPath, c.GroupVersion = "/apis", &version
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.NegotiatedSerializer = newNegotiator()
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	return c
}

// negotiator is client-go's for JSON, with the decoder of this package.
type negotiator struct {
	runtime.NegotiatedSerializer

	types []runtime.SerializerInfo
}

func newNegotiator() negotiator {
	n := negotiator{NegotiatedSerializer: scheme.Codecs.WithoutConversion()}
	info, _ := runtime.SerializerInfoForMediaType(n.NegotiatedSerializer.SupportedMediaTypes(), runtime.ContentTypeJSON)
	stream := *info.StreamSerializer
	info.Serializer = newFast()
	stream.Serializer, stream.Framer = events{serializer(noKind{})}, lines{stream.Framer}
	info.StreamSerializer = &stream
	n.types = []runtime.SerializerInfo{info}
	return n
}

// SupportedMediaTypes returns JSON.
func (n negotiator) SupportedMediaTypes() []runtime.SerializerInfo { return n.types }

// serializer returns the JSON serializer that finds the kind of an object in this way.
func serializer(kinds serializerjson.MetaFactory) runtime.Serializer {
	return serializerjson.NewSerializerWithOptions(kinds, scheme.Scheme, scheme.Scheme, serializerjson.SerializerOptions{})
}

// firstFields finds the kind of an object in its first two fields, where API servers write it: the
// version first in an object of a custom resource, the kind first in a list and in a Status. It
// parses the object for it only where it is elsewhere.
type firstFields struct {
	serializerjson.SimpleMetaFactory
}

// Interpret returns the kind of an object.
func (f firstFields) Interpret(data []byte) (*schema.GroupVersionKind, error) {
	version, rest, first := cutField(data, `{"apiVersion":"`)
	kind, _, second := cutField(rest, `,"kind":"`)
	if !first {
		kind, rest, first = cutField(data, `{"kind":"`)
		version, _, second = cutField(rest, `,"apiVersion":"`)
	}
	if !first || !second {
		return f.SimpleMetaFactory.Interpret(data)
	}
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return nil, fmt.Errorf("find the kind of an object: %w", err)
	}
	is := gv.WithKind(kind)
	return &is, nil
}

// cutField returns the value of a field that begins with a text, and what follows it.
func cutField(data []byte, begin string) (value string, rest []byte, ok bool) {
	data, begins := bytes.CutPrefix(data, []byte(begin))
	raw, rest, ends := bytes.Cut(data, []byte(`"`))
	return string(raw), rest, begins && ends && !bytes.Contains(raw, []byte(`\`))
}

// noKind is for the events of a watch, which have none.
type noKind struct{}

// Interpret returns an empty kind.
func (noKind) Interpret([]byte) (*schema.GroupVersionKind, error) {
	return &schema.GroupVersionKind{}, nil
}

// DecoderToVersion returns the decoder of whole answers and of the objects of a watch.
func (n negotiator) DecoderToVersion(inner runtime.Decoder, version runtime.GroupVersioner) runtime.Decoder {
	return &decoder{n.NegotiatedSerializer.DecoderToVersion(inner, version)}
}

// decoder decodes an answer item by item when it does not decode as a whole.
type decoder struct{ inner runtime.Decoder }

// envelope is the part that is decoded of an answer that does not decode.
type envelope struct {
	metav1.TypeMeta `json:",inline"`

	Metadata json.RawMessage   `json:"metadata"`
	Items    []json.RawMessage `json:"items"`
}

// Decode is runtime.Decoder's. Without an object to decode into, a Failure is the object; else it
// is the error.
func (d *decoder) Decode(data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, actual, err := d.inner.Decode(data, gvk, into)
	if err == nil {
		return obj, actual, nil
	}
	var whole envelope
	if json.Unmarshal(data, &whole) != nil || whole.APIVersion != v1alpha1.SchemeGroupVersion.String() {
		return obj, actual, err
	}
	if kind, isList := strings.CutSuffix(whole.Kind, "List"); isList {
		return d.list(kind, whole, err, into)
	}
	f, ok := failure(data, whole.Kind, err)
	switch {
	case !ok:
		return obj, actual, err
	case into == nil:
		return f, actual, nil
	}
	return nil, actual, f
}

// list decodes the items of a list one by one. cause is the error of the whole list.
func (d *decoder) list(kind string, whole envelope, cause error, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	listKind := v1alpha1.SchemeGroupVersion.WithKind(whole.Kind)
	if into == nil {
		created, err := scheme.Scheme.New(listKind)
		if err != nil {
			return nil, &listKind, cause
		}
		into = created
	}
	about, err := meta.ListAccessor(into)
	if err != nil {
		return nil, &listKind, cause
	}
	var is metav1.ListMeta
	if json.Unmarshal(whole.Metadata, &is) != nil {
		return nil, &listKind, cause
	}
	about.SetResourceVersion(is.ResourceVersion)
	about.SetContinue(is.Continue)
	about.SetRemainingItemCount(is.RemainingItemCount)
	itemKind := v1alpha1.SchemeGroupVersion.WithKind(kind)
	missing := &ListError{}
	items := make([]runtime.Object, 0, len(whole.Items))
	for _, raw := range whole.Items {
		item, _, err := d.inner.Decode(raw, &itemKind, nil)
		if err == nil {
			items = append(items, item)
			continue
		}
		f, ok := failure(raw, kind, err)
		if !ok {
			return nil, &listKind, cause
		}
		missing.Failures = append(missing.Failures, f)
	}
	if len(missing.Failures) == 0 {
		return nil, &listKind, cause // it is not the items
	}
	if err := meta.SetList(into, items); err != nil {
		return nil, &listKind, cause
	}
	return nil, &listKind, missing
}

// failure creates the Failure of an object that does not decode; ok reports whether its metadata
// decodes.
func failure(data []byte, kind string, cause error) (f *Failure, ok bool) {
	f = &Failure{raw: bytes.Clone(data), Cause: explain(data, kind, cause)}
	if json.Unmarshal(data, &f.PartialObjectMetadata) != nil || f.Name == "" {
		return nil, false //nolint:nilerr // ok is false, and the caller has the error of the object
	}
	f.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind}
	return f, true
}
