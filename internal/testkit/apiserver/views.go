package apiserver

import (
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// ShowIn makes a view show everything from now on, in the place of the one before: each change
// before its request is answered.
func (s *Server) ShowIn(view *objectcache.View) {
	for resource, show := range shownIn(view) {
		s.show(resource, show)
	}
}

func shownIn(view *objectcache.View) map[string]func(*Object, bool) {
	return map[string]func(*Object, bool){
		"machinedeployments": shownInStore(view.Deployments), "machinesets": shownInStore(view.Sets),
		"machines": shownInStore(view.Machines), "machineclasses": shownInStore(view.Classes),
	}
}

func shownInStore[T metav1.Object](store *objectcache.Store[T]) func(*Object, bool) {
	return func(o *Object, gone bool) {
		if gone {
			store.Delete(o.key, "")
			return
		}
		shown, _ := asClient(o.raw).(metav1.Object)
		store.Put(shown, false)
	}
}

// asClient returns what a client gets for an object of the machine API: its Go type, or a
// *decode.Failure.
func asClient(raw []byte) runtime.Object {
	config := decode.Config(&rest.Config{})
	decoder, err := runtime.NewClientNegotiator(config.NegotiatedSerializer, *config.GroupVersion).Decoder(runtime.ContentTypeJSON, nil)
	if err != nil {
		panic(err.Error())
	}
	obj, _, err := decoder.Decode(raw, nil, nil)
	if err != nil {
		panic(fmt.Sprintf("decode %s: %v", raw, err))
	}
	return obj
}

// AddJSON stores an object of a resource, such as one that cannot be decoded. It panics when it is
// no JSON.
func (s *Server) AddJSON(resource, object string) {
	document := map[string]any{}
	err := utiljson.Unmarshal([]byte(object), &document)
	if err == nil {
		_, err = s.Put(resource, document)
	}
	if err != nil {
		panic(fmt.Sprintf("add %s: %v", object, err))
	}
}

// SetUndecodable sets an object of the machine API undecodable, or decodable again.
func (s *Server) SetUndecodable(resource, namespace, name string, undecodable bool) {
	s.Edit(resource, namespace, name, func(u *unstructured.Unstructured) {
		part := "spec"
		if resource == "machineclasses" {
			part = "provider"
		}
		if undecodable {
			u.Object[part] = []any{u.Object[part]}
		} else if all, _ := u.Object[part].([]any); len(all) == 1 {
			u.Object[part] = all[0]
		}
	})
}

// Backlog has the changes that a view does not show yet. It is safe for concurrent use.
type Backlog struct {
	mu      sync.Mutex
	waiting map[string][]func() // by resource, the oldest first
}

// ShowLate makes a view show everything in its current version, in the place of the view before,
// and later changes when Show is called. The delays of the kinds are independent of each other.
func (s *Server) ShowLate(view *objectcache.View) *Backlog {
	s.ShowIn(view)
	b := &Backlog{waiting: map[string][]func(){}}
	s.mu.Lock()
	defer s.mu.Unlock()
	for resource, show := range shownIn(view) {
		s.follow[resource] = func(o *Object, gone bool) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.waiting[resource] = append(b.waiting[resource], func() { show(o, gone) })
		}
	}
	return b
}

// Len returns how many changes of a resource are not shown yet.
func (b *Backlog) Len(resource string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting[resource])
}

// Show makes the view show the oldest n changes of a resource, or all if there are fewer.
func (b *Backlog) Show(resource string, changes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	changes = min(changes, len(b.waiting[resource]))
	for _, show := range b.waiting[resource][:changes] {
		show()
	}
	b.waiting[resource] = b.waiting[resource][changes:]
}
