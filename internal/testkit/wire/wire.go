package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/golden"
)

// Manifests decodes the documents of a file without room for unknown fields, and encodes them
// without loss.
func Manifests(t *testing.T, path string, addToScheme func(*runtime.Scheme) error) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := addToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	strict := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme, scheme,
		serializer.SerializerOptions{Yaml: true, Strict: true})

	for _, document := range documents(t, path) {
		object, kind, err := strict.Decode(document, nil, nil)
		if err != nil {
			t.Errorf("%v\n%s", err, document)
			continue
		}
		encoded, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(generic(t, document), generic(t, encoded)); diff != "" {
			t.Errorf("%s changes on its way through the Go type (-manifest +encoded):\n%s", kind.Kind, diff)
		}
	}
}

// Fields compares every field's path and type on the wire with a list, whose every change breaks a
// client.
func Fields(t *testing.T, list string, objects ...any) {
	t.Helper()
	var got strings.Builder
	for _, object := range objects {
		kind := reflect.TypeOf(object)
		writeFields(&got, kind.Name(), kind)
	}
	golden.Compare(t, list, got.String())
	if t.Failed() {
		t.Log("each line that is removed or changed breaks a client")
	}
}

// writeFields lists the fields of a struct of this API, and of the structs of this API inside it.
func writeFields(out *strings.Builder, path string, structure reflect.Type) {
	for field := range structure.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		inner, repeated := elem(field.Type)
		ours := inner.Kind() == reflect.Struct && inner.PkgPath() == structure.PkgPath()
		switch {
		case strings.Contains(options, "inline") && ours:
			writeFields(out, path, inner)
		case strings.Contains(options, "inline"):
		case ours:
			writeFields(out, path+"."+name+repeated, inner)
		default:
			fmt.Fprintf(out, "%s.%s %s\n", path, name, field.Type)
		}
	}
}

// elem follows pointers and slices to their element type.
func elem(t reflect.Type) (inner reflect.Type, repeated string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice {
			repeated = "[]"
		}
		t = t.Elem()
	}
	return t, repeated
}

func documents(t *testing.T, path string) [][]byte {
	t.Helper()
	content, err := os.ReadFile(path) //nolint:gosec // the path is that of a test
	if err != nil {
		t.Fatal(err)
	}
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	var all [][]byte
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, document)
	}
}

// generic is a document as maps and lists. Null and {} are omitted: they are equivalent to no
// value.
func generic(t *testing.T, document []byte) any {
	t.Helper()
	content, err := yaml.ToJSON(document)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatal(err)
	}
	return significant(value)
}

func significant(value any) any {
	fields, ok := value.(map[string]any)
	if !ok {
		return value
	}
	for name, field := range fields {
		fields[name] = significant(field)
		if fields[name] == nil {
			delete(fields, name)
		}
	}
	if len(fields) == 0 {
		return nil
	}
	return fields
}
