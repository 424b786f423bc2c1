package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// getsProtobuf reports whether a watch shows objects in protobuf: those of built-in kinds, and
// metadata, if the client accepts it.
func getsProtobuf(r *http.Request, t target, partial bool) bool {
	return strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) &&
		(partial || scheme.Scheme.Recognizes(t.group.WithKind(t.kind.name)))
}

// protobufOf encodes an object of a built-in kind, or metadata, of a JSON document. Errors: the
// document is none.
func protobufOf(document []byte) ([]byte, error) {
	metadata := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(document, metadata); err != nil {
		return nil, fmt.Errorf("decode metadata: %w", err)
	}
	var obj runtime.Object = metadata
	if metadata.Kind != partialKind {
		var err error
		if obj, err = scheme.Scheme.New(schema.FromAPIVersionAndKind(metadata.APIVersion, metadata.Kind)); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(document, obj); err != nil {
			return nil, fmt.Errorf("decode the %s: %w", metadata.Kind, err)
		}
	}
	var encoded bytes.Buffer
	err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(obj, &encoded)
	return encoded.Bytes(), err
}

// writeEvent writes an event that shows an object in protobuf.
func writeEvent(to *bytes.Buffer, kind watch.EventType, object []byte) error {
	event := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: object}}
	return protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme).Encode(event, protobuf.LengthDelimitedFramer.NewFrameWriter(to))
}
