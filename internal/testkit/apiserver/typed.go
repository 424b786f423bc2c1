package apiserver

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Read returns a stored object as its Go type, nil when there is none. It panics when the object cannot be decoded.
func Read[T any](s *Server, resource, namespace, name string) *T {
	if o := s.Get(resource, namespace, name); o != nil {
		return typed[T](o)
	}
	return nil
}

// ReadAll returns all objects of a resource as their Go type, by namespace and name. It panics when one cannot be decoded.
func ReadAll[T any](s *Server, resource string) (all []*T) {
	for _, o := range s.List(resource) {
		all = append(all, typed[T](o))
	}
	return all
}

func typed[T any](o *Object) *T {
	obj := new(T)
	if err := json.Unmarshal(o.raw, obj); err != nil {
		panic(fmt.Sprintf("decode %s %s: %v", o.GetKind(), o.key, err))
	}
	return obj
}

// Change is Edit with the object as its Go type. It panics when the object cannot be decoded or encoded.
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
