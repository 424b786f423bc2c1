package leasetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Server keeps Leases. The zero value is not ready: create one with NewServer.
type Server struct {
	mu      sync.Mutex
	version int
	leases  map[string]*coordinationv1.Lease // by namespace/name
	history []change
	changed chan struct{} // closed at the next change
	away    bool
	fault   func(r *http.Request) error
}

type change struct {
	version int
	kind    watch.EventType
	lease   *coordinationv1.Lease
}

// NewServer returns a server without Leases.
func NewServer() *Server {
	return &Server{leases: map[string]*coordinationv1.Lease{}, changed: make(chan struct{})}
}

// Config returns a client configuration for the server.
func (s *Server) Config() *rest.Config {
	return &rest.Config{
		Host: "http://leases.test", Transport: transport{s}, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON},
	}
}

// Away makes the server stop answering, or answer again. Requests that arrive while it is away are never executed.
func (s *Server) Away(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
	s.wakeLocked()
}

// Fault makes the server call f before each request; if f returns an error the client gets it, and nothing is executed. Nil ends
// that.
func (s *Server) Fault(f func(r *http.Request) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Leases returns a copy of all Leases, by name.
func (s *Server) Leases() map[string]*coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]*coordinationv1.Lease{}
	for _, lease := range s.leases {
		found[lease.Name] = lease.DeepCopy()
	}
	return found
}

// Edit changes a Lease as a user would, and reports whether it exists.
func (s *Server) Edit(name string, edit func(*coordinationv1.Lease)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, lease := range s.leases {
		if lease.Name == name {
			changed := lease.DeepCopy()
			edit(changed)
			s.putLocked(key, watch.Modified, changed)
			return true
		}
	}
	return false
}

// Delete removes a Lease as a user would.
func (s *Server) Delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, lease := range s.leases {
		if lease.Name == name {
			gone := lease.DeepCopy()
			s.putLocked(key, watch.Deleted, gone)
		}
	}
}

func (s *Server) putLocked(key string, kind watch.EventType, lease *coordinationv1.Lease) {
	s.version++
	lease.ResourceVersion = strconv.Itoa(s.version)
	if kind == watch.Deleted {
		delete(s.leases, key)
	} else {
		s.leases[key] = lease
	}
	s.history = append(s.history, change{s.version, kind, lease})
	s.wakeLocked()
}

func (s *Server) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// transport is the connection to the server.
type transport struct{ *Server }

// RoundTrip answers a request. While the server is away it waits for the request's end.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	away, fault := t.away, t.fault
	t.mu.Unlock()
	if away {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if fault != nil {
		if err := fault(r); err != nil {
			return nil, err
		}
	}
	// /apis/coordination.k8s.io/v1/namespaces/<namespace>/leases[/<name>]
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) < 6 || parts[5] != "leases" {
		return answer(r, nil, apierrors.NewBadRequest("expected Leases, got "+r.URL.Path))
	}
	name := ""
	if len(parts) > 6 {
		name = parts[6]
	}
	if r.URL.Query().Get("watch") != "" {
		return t.watch(r, parts[4])
	}
	result, err := t.serve(r, parts[4], name)
	return answer(r, result, err)
}

func (s *Server) serve(r *http.Request, namespace, name string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource := coordinationv1.Resource("leases")
	switch {
	case r.Method == http.MethodGet && name == "":
		return s.listLocked(r, namespace)
	case r.Method == http.MethodGet:
		if lease, found := s.leases[namespace+"/"+name]; found {
			return lease, nil
		}
		return nil, apierrors.NewNotFound(resource, name)
	case r.Method == http.MethodPost:
		return s.createLocked(r, namespace)
	case r.Method == http.MethodPut:
		return s.updateLocked(r, namespace, name)
	}
	return nil, apierrors.NewMethodNotSupported(resource, r.Method)
}

func (s *Server) listLocked(r *http.Request, namespace string) (any, error) {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	list := &coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
	for _, key := range slices.Sorted(maps.Keys(s.leases)) {
		if lease := s.leases[key]; lease.Namespace == namespace && selector.Matches(labels.Set(lease.Labels)) {
			list.Items = append(list.Items, *lease.DeepCopy())
		}
	}
	return list, nil
}

func read(r *http.Request) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	if err := json.NewDecoder(r.Body).Decode(lease); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return lease, nil
}

func (s *Server) createLocked(r *http.Request, namespace string) (any, error) {
	lease, err := read(r)
	if err != nil {
		return nil, err
	}
	if err := validate(lease); err != nil {
		return nil, err
	}
	key := namespace + "/" + lease.Name
	if _, exists := s.leases[key]; exists {
		return nil, apierrors.NewAlreadyExists(coordinationv1.Resource("leases"), lease.Name)
	}
	lease.Namespace, lease.UID = namespace, types.UID(fmt.Sprintf("uid-%d", s.version+1))
	s.putLocked(key, watch.Added, lease)
	return lease, nil
}

func (s *Server) updateLocked(r *http.Request, namespace, name string) (any, error) {
	lease, err := read(r)
	if err != nil {
		return nil, err
	}
	key, resource := namespace+"/"+name, coordinationv1.Resource("leases")
	before, exists := s.leases[key]
	switch {
	case !exists:
		return nil, apierrors.NewNotFound(resource, name)
	case lease.UID != before.UID || lease.ResourceVersion != before.ResourceVersion:
		return nil, apierrors.NewConflict(resource, name, fmt.Errorf("it is %s/%s", before.UID, before.ResourceVersion))
	}
	if err := validate(lease); err != nil {
		return nil, err
	}
	s.putLocked(key, watch.Modified, lease)
	return lease, nil
}

// validate refuses what the API server refuses.
func validate(lease *coordinationv1.Lease) error {
	if n := lease.Spec.LeaseTransitions; n != nil && *n < 0 {
		return apierrors.NewInvalid(coordinationv1.SchemeGroupVersion.WithKind("Lease").GroupKind(), lease.Name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "leaseTransitions"), *n, "must be greater than or equal to 0"),
		})
	}
	return nil
}

// watch streams the changes since the requested version, until the request ends or the server stops answering.
func (s *Server) watch(r *http.Request, namespace string) (*http.Response, error) {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	since, err2 := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil || err2 != nil {
		return answer(r, nil, apierrors.NewBadRequest("expected a selector and a resourceVersion"))
	}
	reader, writer := io.Pipe()
	go func() {
		for {
			s.mu.Lock()
			news, changed, away := s.history, s.changed, s.away
			s.mu.Unlock()
			for _, c := range news {
				if c.version <= since || c.lease.Namespace != namespace || !selector.Matches(labels.Set(c.lease.Labels)) || away {
					continue
				}
				since = c.version
				if err := json.NewEncoder(writer).Encode(map[string]any{"type": c.kind, "object": withKind(c.lease)}); err != nil {
					return
				}
			}
			select {
			case <-changed:
			case <-r.Context().Done():
				_ = writer.CloseWithError(r.Context().Err())
				return
			}
		}
	}()
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: reader, Request: r,
	}, nil
}

func withKind(lease *coordinationv1.Lease) *coordinationv1.Lease {
	lease = lease.DeepCopy()
	lease.TypeMeta = metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"}
	return lease
}

// answer returns the response for a result, or for an error.
func answer(r *http.Request, result any, err error) (*http.Response, error) {
	code := http.StatusOK
	if status, ok := err.(apierrors.APIStatus); ok {
		failure := status.Status()
		failure.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		result, code = failure, int(failure.Code)
	}
	if lease, ok := result.(*coordinationv1.Lease); ok {
		result = withKind(lease)
	}
	body, err := json.Marshal(result)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}, nil
}
