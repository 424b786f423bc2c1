package apiserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	fleetscheme "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/scheme"
)

// Typed is an object in its Go type.
type Typed interface {
	metav1.Object
	runtime.Object
}

// Add stores an object as it is, also with its status, and returns it as it is stored: with a
// version, and with a UID and a time of creation if it had none. It is the next version of the one
// of its name, if there is one. It panics when the kind is not known.
func Add[T Typed](s *Server, obj T) T {
	of := obj.GetObjectKind().GroupVersionKind()
	for _, known := range []*runtime.Scheme{scheme.Scheme, fleetscheme.Scheme} {
		if all, _, err := known.ObjectKinds(obj); err == nil && of.Empty() {
			of = all[0]
		}
	}
	for resource, k := range kinds {
		if k.name != of.Kind {
			continue
		}
		document, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			panic(fmt.Sprintf("add %s %s: %v", resource, obj.GetName(), err))
		}
		stored := s.add(resource, &unstructured.Unstructured{Object: document}, of)
		if obj, _ = obj.DeepCopyObject().(T); true {
			obj.SetUID(stored.GetUID())
			obj.SetResourceVersion(stored.GetResourceVersion())
			obj.SetGeneration(stored.GetGeneration())
			obj.SetCreationTimestamp(stored.GetCreationTimestamp())
		}
		return obj
	}
	panic(fmt.Sprintf("add %T: kind %s is unknown", obj, of))
}

func (s *Server) add(resource string, u *unstructured.Unstructured, of schema.GroupVersionKind) *Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.SetGroupVersionKind(of)
	st := s.storeOf(resource)
	before := st.objects[types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}]
	given := u.DeepCopy()
	if s.born(u, kinds[resource]); before != nil {
		u.SetUID(before.GetUID())
		u.SetCreationTimestamp(before.GetCreationTimestamp())
	}
	u.SetUID(cmp.Or(given.GetUID(), u.GetUID()))
	u.SetGeneration(cmp.Or(given.GetGeneration(), u.GetGeneration()))
	u.SetDeletionTimestamp(given.GetDeletionTimestamp())
	if at := given.GetCreationTimestamp(); !at.IsZero() {
		u.SetCreationTimestamp(at)
	}
	stored, err := s.write(st, before, u)
	if err != nil {
		panic(err.Error())
	}
	return stored
}

// Merge merges a patch into an object, or into its status, as a request does that is neither
// recorded nor rejected by Fault. It panics when the patch cannot be applied.
func (s *Server) Merge(resource, namespace, name, patch string, subresource ...string) {
	t := target{resource: resource, kind: kinds[resource], subresource: strings.Join(subresource, "")}
	t.Namespace, t.Name = namespace, name
	if _, err := s.patch(t, types.MergePatchType, []byte(patch)); err != nil {
		panic(fmt.Sprintf("patch %s %s: %v", resource, name, err))
	}
}

// Read returns a stored object as its Go type, without fields that have another type there; nil
// when there is none.
func Read[T any](s *Server, resource, namespace, name string) *T {
	if o := s.Get(resource, namespace, name); o != nil {
		return typed[T](o)
	}
	return nil
}

// ReadAll returns all objects of a resource as Read does, by namespace and name.
func ReadAll[T any](s *Server, resource string) (all []*T) {
	for _, o := range s.List(resource) {
		all = append(all, typed[T](o))
	}
	return all
}

// Follow calls f for each object of a resource, and at each change from now on, before the request
// that makes it is answered. gone reports whether the object, in its last version, was removed. f
// takes the place of the one before; it must not use the server.
func Follow[T any](s *Server, resource string, f func(obj *T, gone bool)) {
	s.show(resource, func(o *Object, gone bool) { f(typed[T](o), gone) })
}

func typed[T any](o *Object) *T {
	obj := new(T)
	wrongType := (*json.UnmarshalTypeError)(nil)
	if err := json.Unmarshal(o.raw, obj); err != nil && !errors.As(err, &wrongType) {
		panic(fmt.Sprintf("decode %s %s: %v", o.GetKind(), o.key, err))
	}
	return obj
}

// Change is Edit with the object as its Go type. It panics when the object cannot be decoded or
// encoded.
func Change[T any](s *Server, resource, namespace, name string, change func(*T)) bool {
	return s.Edit(resource, namespace, name, func(u *unstructured.Unstructured) {
		obj := new(T)
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj)
		if err == nil {
			change(obj)
			u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		}
		if err != nil {
			panic(fmt.Sprintf("change %s %s: %v", resource, name, err))
		}
	})
}
