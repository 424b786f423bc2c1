package apitest

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// Request is one request, as the server has seen it.
type Request struct {
	// Verb is get, list, create, patch or delete.
	Verb                        string
	Resource, Subresource, Name string
}

// Server is the API server. Make one with New.
type Server struct {
	now func() time.Time

	undecodable sync.Map // keys of objects that cannot be decoded

	mu       sync.Mutex
	version  int64
	kinds    map[string]kind
	objects  map[string]map[types.NamespacedName]object // by resource
	refuse   func(Request) error
	lose     func(Request) error
	requests []Request
}

// object is any object of the API.
type object interface {
	metav1.Object
	runtime.Object
}

// kind describes a kind of objects to the server.
type kind struct {
	empty func() object
	show  func(o object, gone bool)
}

// New makes a server without objects. now is its clock.
func New(now func() time.Time) *Server {
	s := &Server{now: now, objects: map[string]map[types.NamespacedName]object{}}
	s.ShowIn(objectcache.NewView())
	return s
}

// ShowIn makes a view show everything from now on, in the place of the one before.
func (s *Server) ShowIn(view *objectcache.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.showIn(view)
}

func (s *Server) showIn(view *objectcache.View) {
	s.kinds = map[string]kind{
		"machinedeployments": {func() object { return &v1alpha1.MachineDeployment{} }, shownIn(s, "machinedeployments", view.Deployments)},
		"machinesets":        {func() object { return &v1alpha1.MachineSet{} }, shownIn(s, "machinesets", view.Sets)},
		"machines":           {func() object { return &v1alpha1.Machine{} }, shownIn(s, "machines", view.Machines)},
		"machineclasses":     {func() object { return &v1alpha1.MachineClass{} }, shownIn(s, "machineclasses", view.Classes)},
	}
	for resource, all := range s.objects {
		for _, o := range all {
			s.kinds[resource].show(o, false)
		}
	}
}

func shownIn[T object](s *Server, resource string, store *objectcache.Store[T]) func(object, bool) {
	return func(o object, gone bool) {
		switch f, failed := s.failure(key{resource, objectcache.Key(o)}, o); {
		case gone:
			store.Delete(objectcache.Key(o), "")
		case failed:
			store.Put(f, false)
		default:
			if typed, ok := o.DeepCopyObject().(T); ok {
				store.Put(typed, false)
			}
		}
	}
}

// Refuse makes every request from now on fail with the error of f, if it returns one; nil rejects none.
func (s *Server) Refuse(f func(Request) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = f
}

// Lose calls f with every request of a Client that was carried out from now on. If f returns an error, that is the answer:
// the sender does not know that the request has taken effect. Nil loses none.
func (s *Server) Lose(f func(Request) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose = f
}

// answered reports whether the answer to a request that was carried out is lost.
func (s *Server) answered(r Request) error {
	s.mu.Lock()
	lose := s.lose
	s.mu.Unlock()
	if lose == nil {
		return nil
	}
	return lose(r)
}

// Requests returns what was requested so far, rejected or not.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Writes counts the requests so far that may have changed something.
func (s *Server) Writes() int {
	return len(slices.DeleteFunc(s.Requests(), func(r Request) bool { return r.Verb == "get" || r.Verb == "list" }))
}

// admit records a request and reports whether it is rejected.
func (s *Server) admit(r Request) error {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	refuse := s.refuse
	s.mu.Unlock()
	if refuse == nil {
		return nil
	}
	return refuse(r)
}

// key of an object; resource is its plural.
type key struct {
	resource string
	types.NamespacedName
}

func (k key) notFound() error {
	return apierrors.NewNotFound(v1alpha1.Resource(k.resource), k.Name)
}

func (k key) conflict(format string, args ...any) error {
	return apierrors.NewConflict(v1alpha1.Resource(k.resource), k.Name, fmt.Errorf(format, args...))
}

func (s *Server) get(k key) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.objects[k.resource][k.NamespacedName]
	if !ok {
		return nil, k.notFound()
	}
	return copied(found), nil
}

func copied(o object) object {
	c, _ := o.DeepCopyObject().(object)
	return c
}

func (s *Server) create(k key, o object) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, exists := s.objects[k.resource][k.NamespacedName]; exists {
		return nil, apierrors.NewAlreadyExists(v1alpha1.Resource(k.resource), k.Name)
	}
	o = copied(o)
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("%s-%d", k.Name, s.version+1)))
	}
	o.SetCreationTimestamp(metav1.NewTime(s.now().Truncate(time.Second)))
	o.SetGeneration(1)
	s.store(k, o)
	return copied(o), nil
}

// store keeps a version of an object, and shows it. One without finalizers that is being deleted is removed.
func (s *Server) store(k key, o object) {
	s.version++
	o.SetResourceVersion(strconv.FormatInt(s.version, 10))
	if s.objects[k.resource] == nil {
		s.objects[k.resource] = map[types.NamespacedName]object{}
	}
	gone := o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0
	if gone {
		delete(s.objects[k.resource], k.NamespacedName)
	} else {
		s.objects[k.resource][k.NamespacedName] = o
	}
	s.kinds[k.resource].show(o, gone)
}

func (s *Server) delete(k key, preconditions *metav1.Preconditions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.objects[k.resource][k.NamespacedName]
	if !ok {
		return k.notFound()
	}
	if p := preconditions; p != nil && (p.UID != nil && *p.UID != found.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != found.GetResourceVersion()) {
		return k.conflict("preconditions %+v, it is %s of version %s", p, found.GetUID(), found.GetResourceVersion())
	}
	if found.GetDeletionTimestamp() != nil {
		return nil
	}
	o := copied(found)
	at := metav1.NewTime(s.now().Truncate(time.Second))
	o.SetDeletionTimestamp(&at)
	o.SetGeneration(o.GetGeneration() + 1)
	s.store(k, o)
	return nil
}

// list returns the objects of a resource in a namespace, by name.
func (s *Server) list(resource, namespace string) []object {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []object
	for name, o := range s.objects[resource] {
		if namespace == "" || name.Namespace == namespace {
			all = append(all, copied(o))
		}
	}
	slices.SortFunc(all, compare)
	return all
}

func compare(a, b object) int {
	return slices.Compare([]string{a.GetNamespace(), a.GetName()}, []string{b.GetNamespace(), b.GetName()})
}
