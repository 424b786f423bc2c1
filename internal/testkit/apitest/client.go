package apitest

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	clienttesting "k8s.io/client-go/testing"

	machinefake "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/fake"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
)

// Client returns a client of the server.
func (s *Server) Client() machineclient.MachineV1alpha1Interface {
	client := &machinefake.Clientset{}
	client.AddReactor("*", "*", s.answer)
	return client.MachineV1alpha1()
}

// Via is a way to the server: it passes a request on with send, or does not, and returns the client's answer.
type Via func(r Request, send func() error) error

// ClientVia returns a client of the server all of whose requests use it.
func (s *Server) ClientVia(via Via) machineclient.MachineV1alpha1Interface {
	client := &machinefake.Clientset{}
	client.AddReactor("*", "*", func(action clienttesting.Action) (handled bool, answer runtime.Object, err error) {
		err = via(requestOf(action), func() (err error) {
			_, answer, err = s.answer(action)
			return err
		})
		if err != nil {
			return true, nil, err
		}
		return true, answer, nil
	})
	return client.MachineV1alpha1()
}

func requestOf(action clienttesting.Action) Request {
	return Request{
		Verb: action.GetVerb(), Resource: action.GetResource().Resource, Subresource: action.GetSubresource(), Name: nameIn(action),
	}
}

// answer answers one request of a client.
func (s *Server) answer(action clienttesting.Action) (handled bool, answer runtime.Object, err error) {
	k := key{resource: action.GetResource().Resource}
	k.Namespace, k.Name = action.GetNamespace(), nameIn(action)
	if err := s.admit(requestOf(action)); err != nil {
		return true, s.kinds[k.resource].empty(), err
	}
	var found object
	switch a := action.(type) {
	case clienttesting.CreateActionImpl:
		made, _ := a.GetObject().(object)
		found, err = s.create(k, made)
	case clienttesting.PatchActionImpl:
		found, err = s.patch(k, a.GetPatch(), a.GetSubresource())
	case clienttesting.DeleteActionImpl:
		err = s.delete(k, a.GetDeleteOptions().Preconditions)
	case clienttesting.GetActionImpl:
		found, err = s.get(k)
	default:
		err = fmt.Errorf("apitest: %s of %s is not implemented; add it to answer", action.GetVerb(), k.resource)
	}
	if err == nil && found != nil {
		if f, failed := s.failure(k, found); failed {
			err = f
		}
	}
	if err == nil {
		err = s.answered(Request{Verb: action.GetVerb(), Resource: k.resource, Subresource: action.GetSubresource(), Name: k.Name})
	}
	if found == nil || err != nil {
		found = s.kinds[k.resource].empty()
	}
	return true, found, err
}

func nameIn(action clienttesting.Action) string {
	switch a := action.(type) {
	case clienttesting.CreateActionImpl:
		if made, ok := a.GetObject().(metav1.Object); ok {
			return made.GetName()
		}
	case interface{ GetName() string }:
		return a.GetName()
	}
	return ""
}

// Metadata returns a client of the server that lists metadata, and supports nothing else.
func (s *Server) Metadata() metadata.Interface { return &lister{server: s} }

type lister struct {
	metadata.Getter // nil: a call of a method that is not implemented here panics

	server              *Server
	resource, namespace string
}

// Resource is metadata.Interface's.
func (l *lister) Resource(resource schema.GroupVersionResource) metadata.Getter {
	return &lister{server: l.server, resource: resource.Resource}
}

// Namespace is metadata.Getter's.
func (l *lister) Namespace(namespace string) metadata.ResourceInterface {
	return &lister{server: l.server, resource: l.resource, namespace: namespace}
}

// List returns all that the label selector matches, in one page; it ignores all other options.
func (l *lister) List(_ context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	if err := l.server.admit(Request{Verb: "list", Resource: l.resource}); err != nil {
		return nil, err
	}
	selector, err := labels.Parse(options.LabelSelector)
	if err != nil {
		return nil, fmt.Errorf("label selector: %w", err)
	}
	list := &metav1.PartialObjectMetadataList{}
	for _, o := range l.server.list(l.resource, l.namespace) {
		if !selector.Matches(labels.Set(o.GetLabels())) {
			continue
		}
		meta := metav1.PartialObjectMetadata{}
		meta.Name, meta.Namespace, meta.UID = o.GetName(), o.GetNamespace(), o.GetUID()
		meta.CreationTimestamp = o.GetCreationTimestamp()
		meta.ResourceVersion, meta.Labels, meta.Annotations = o.GetResourceVersion(), o.GetLabels(), o.GetAnnotations()
		meta.OwnerReferences, meta.DeletionTimestamp, meta.Finalizers = o.GetOwnerReferences(), o.GetDeletionTimestamp(), o.GetFinalizers()
		list.Items = append(list.Items, meta)
	}
	return list, nil
}

// Object returns the current version of an object; nil when there is none.
func (s *Server) Object(resource, namespace, name string) metav1.Object {
	o, err := s.get(key{resource, types.NamespacedName{Namespace: namespace, Name: name}})
	if err != nil {
		return nil
	}
	return o
}

// All returns all objects of a resource in a namespace in their current version, by name.
func (s *Server) All(resource, namespace string) (all []metav1.Object) {
	for _, o := range s.list(resource, namespace) {
		all = append(all, o)
	}
	return all
}
