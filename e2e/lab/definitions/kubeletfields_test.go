package definitions_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/golden"
)

// fieldsOfFold is the list with which controllers/machineconfig/kubeletconfig/fold compares its
// table of the fields of KubeletConfigs. The product does not import the types of the kubelet that
// the lab runs, with which it is compared here.
const fieldsOfFold = "../../../controllers/machineconfig/kubeletconfig/fold/testdata/fields.txt"

func TestFieldsAreThoseOfTheKubelet(t *testing.T) {
	var got []string
	list(t, &got, "", reflect.TypeFor[kubeletconfig.KubeletConfiguration]())
	slices.Sort(got)
	golden.Compare(t, fieldsOfFold, strings.Join(got, "\n")+"\n")
	if t.Failed() {
		t.Log("then correct the table in controllers/machineconfig/kubeletconfig/fold")
	}
}

// scalars are the names of types in the list.
var scalars = map[reflect.Kind]string{
	reflect.Bool: "boolean", reflect.String: "text", reflect.Int32: "int32s", reflect.Uint32: "int32s", reflect.Int64: "int64s",
	reflect.Float64: "float",
}

func list(t *testing.T, lines *[]string, path string, kind reflect.Type) {
	t.Helper()
	switch kind {
	case reflect.TypeFor[metav1.Duration]():
		*lines = append(*lines, path+" duration")
		return
	case reflect.TypeFor[metav1.Time]():
		*lines = append(*lines, path+" instant")
		return
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[resource.QuantityValue]():
		*lines = append(*lines, path+" quantity")
		return
	}
	switch kind.Kind() { //nolint:exhaustive // all others are scalars, or reported
	case reflect.Pointer:
		list(t, lines, path, kind.Elem())
	case reflect.Map:
		list(t, lines, path+"{}", kind.Elem())
	case reflect.Slice:
		list(t, lines, path+"[]", kind.Elem())
	case reflect.Struct:
		listFields(t, lines, path, kind)
	default:
		name, known := scalars[kind.Kind()]
		if !known {
			t.Fatalf("%s has the type %s, which the table has no name for", path, kind)
		}
		*lines = append(*lines, path+" "+name)
	}
}

func listFields(t *testing.T, lines *[]string, path string, structure reflect.Type) {
	t.Helper()
	if reflect.PointerTo(structure).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		if structure.Name() != "TimeOrMetaDuration" {
			t.Fatalf("%s has the type %s, which decodes itself", path, structure)
		}
		*lines = append(*lines, path+" interval")
		return
	}
	for field := range structure.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && (field.Anonymous || strings.Contains(options, "inline")):
			listFields(t, lines, path, field.Type)
		case path == "":
			list(t, lines, name, field.Type)
		default:
			list(t, lines, path+"."+name, field.Type)
		}
	}
}
