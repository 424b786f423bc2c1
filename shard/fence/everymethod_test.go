package fence

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	machineclientset "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// TestNothingChangesAnythingWithoutOwnership calls every mutating method of every client and
// driver, and looks at what arrives.
func TestNothingChangesAnythingWithoutOwnership(t *testing.T) {
	s := newStand(t)
	var exempted atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case exempt(r, ""):
			exempted.Add(1)
		case mutates(r.Method):
			t.Errorf("%s %s has arrived", r.Method, r.URL.Path)
		}
		http.Error(w, "no", http.StatusTeapot)
	}))
	defer server.Close()
	config, err := s.Guard(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	w := &walker{t: t, exempted: &exempted}
	w.groups(reflect.TypeFor[kubernetes.Interface](), reflect.ValueOf(kubernetes.NewForConfigOrDie(config)))
	w.groups(reflect.TypeFor[machineclientset.Interface](), reflect.ValueOf(machineclientset.NewForConfigOrDie(config)))
	things := metadata.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "things"})
	w.resource(reflect.ValueOf(things.Namespace("n")))

	cloud := &fakecloud.Cloud{}
	fenced := s.Driver(cloud.Driver())
	_, err = fenced.CreateMachine(t.Context(), driver.CreateMachineRequest{})
	wantRefused(t, "CreateMachine", err, Unowned)
	_, err = fenced.InitializeMachine(t.Context(), driver.InitializeMachineRequest{})
	wantRefused(t, "InitializeMachine", err, Unowned)
	_, err = fenced.DeleteMachine(t.Context(), driver.DeleteMachineRequest{})
	wantRefused(t, "DeleteMachine", err, Unowned)
	sweeper, _ := driver.SweeperOf(fenced)
	_, err = sweeper.DeleteResource(t.Context(), driver.DeleteResourceRequest{})
	wantRefused(t, "DeleteResource", err, Unowned)

	for _, op := range []driver.Op{driver.OpCreate, driver.OpInitialize, driver.OpDelete, driver.OpSweep} {
		if calls := cloud.Calls(op); len(calls) > 0 {
			t.Errorf("%s has arrived at the cloud", op)
		}
	}
	if w.refused < 1000 || exempted.Load() == 0 {
		t.Errorf("%d calls were refused and %d exempt: the walk does not find the methods any more", w.refused, exempted.Load())
	}
}

// walker calls methods that it has never heard of.
type walker struct {
	t        *testing.T
	exempted *atomic.Int64 // requests that arrived and may do so
	refused  int
}

// groups walks the groups of a clientset, and their resources.
func (w *walker) groups(api reflect.Type, clientset reflect.Value) {
	for method := range api.Methods() {
		if method.Name == "Discovery" { // it only reads
			continue
		}
		group := clientset.MethodByName(method.Name).Call(nil)[0].Elem()
		for j := range group.NumMethod() {
			if group.Type().Method(j).Name != "RESTClient" {
				resource := group.Method(j)
				w.resource(resource.Call(w.arguments(resource.Type()))[0])
			}
		}
	}
}

// resource calls all methods of a resource that do not just read.
func (w *walker) resource(resource reflect.Value) {
	for i := range resource.NumMethod() {
		name, method := resource.Type().Method(i).Name, resource.Method(i)
		outs := method.Type().NumOut()
		reads := slices.ContainsFunc([]string{"Get", "List", "Watch", "Search", "Proxy"}, func(prefix string) bool {
			return strings.HasPrefix(name, prefix)
		})
		if reads || outs == 0 || method.Type().Out(outs-1) != reflect.TypeFor[error]() {
			continue
		}
		before := w.exempted.Load()
		results := method.Call(w.arguments(method.Type()))
		err, _ := reflect.TypeAssert[error](results[outs-1])
		if refused, ok := errors.AsType[*RefusedError](err); ok && refused.Why == Unowned {
			w.refused++
		} else if w.exempted.Load() == before {
			w.t.Errorf("%s.%s: got %v, want a refusal", resource.Type(), name, err)
		}
	}
}

// arguments creates something of each type that gets through the client's own checks.
func (w *walker) arguments(method reflect.Type) []reflect.Value {
	var arguments []reflect.Value
	for i := range method.NumIn() {
		if method.IsVariadic() && i == method.NumIn()-1 {
			break
		}
		arguments = append(arguments, w.argument(method.In(i)))
	}
	return arguments
}

func (w *walker) argument(kind reflect.Type) reflect.Value {
	switch kind {
	case reflect.TypeFor[context.Context]():
		return reflect.ValueOf(w.t.Context())
	case reflect.TypeFor[string]():
		return reflect.ValueOf("x")
	case reflect.TypeFor[types.PatchType]():
		return reflect.ValueOf(types.MergePatchType)
	case reflect.TypeFor[[]byte]():
		return reflect.ValueOf([]byte("{}"))
	}
	if kind.Kind() != reflect.Pointer {
		return reflect.Zero(kind)
	}
	created := reflect.New(kind.Elem())
	for _, name := range []string{"Name", "Namespace"} {
		if setter := created.MethodByName("With" + name); setter.IsValid() { // what server-side apply takes
			setter.Call([]reflect.Value{reflect.ValueOf("x")})
		} else if field, has := kind.Elem().FieldByName(name); has && field.Type.Kind() == reflect.String {
			created.Elem().FieldByIndex(field.Index).SetString("x")
		}
	}
	return created
}
