package apiserver

import (
	"encoding/json"
	"math"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// Request is a request to the server.
type Request struct {
	*http.Request

	// Verb is get, list, watch, create, update, patch or delete.
	Verb                             string
	Resource, Subresource, Namespace string
	// Name is that of the object, also of one that is created; empty for lists and watches.
	Name string
	// Content is the body, which can no longer be read from the request.
	Content []byte
}

// requestOf returns a request with what its path, its query and its body say about it.
func requestOf(r *http.Request, t target, body []byte) Request {
	q := Request{Request: r, Resource: t.resource, Subresource: t.subresource, Namespace: t.Namespace, Name: t.Name, Content: body}
	switch {
	case r.Method == http.MethodPost:
		q.Verb = "create"
		var created metav1.PartialObjectMetadata
		if document, err := decode(body); err == nil && q.Name == "" {
			raw, _ := json.Marshal(document) // it was decoded
			_ = json.Unmarshal(raw, &created)
			q.Name = created.Name
		}
	case r.Method == http.MethodPut:
		q.Verb = "update"
	case r.Method == http.MethodPatch:
		q.Verb = "patch"
	case r.Method == http.MethodDelete:
		q.Verb = "delete"
	case t.Name != "":
		q.Verb = "get"
	case isWatch(r.URL.Query()):
		q.Verb = "watch"
	default:
		q.Verb = "list"
	}
	return q
}

// Config returns the configuration of a client of the server that sends JSON, also for built-in kinds.
func (s *Server) Config() *rest.Config {
	return &rest.Config{
		Host: "http://memory", Transport: s, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON},
	}
}

// Fault makes the server call f before each request from now on. If f returns an error, the request is not executed: the answer is the
// error's status, or none if it has no status. f may wait, until the request ends at the latest. Nil ends that.
func (s *Server) Fault(f func(r Request) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Lose makes the server call f after each request from now on that was executed. If f returns an error, that is the answer instead, as
// that of Fault: the client does not know that the request has taken effect. Nil ends that.
func (s *Server) Lose(f func(r Request) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose = f
}

// Away makes the server stop answering, or answer again. Requests that arrive while it is away are never executed, and watches show what
// they have missed when it is back.
func (s *Server) Away(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case away && s.back == nil:
		s.back = make(chan struct{})
	case !away && s.back != nil:
		close(s.back)
		s.back = nil
	}
}

// untilBack delays the events of watches while the server is away.
func (s *Server) untilBack() (back <-chan struct{}, atMost time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.back, math.MaxInt64
}

// admit returns the error of a request that is not executed, and what follows one that is.
func (s *Server) admit(r *http.Request, t target, body []byte) (executed func() error, err error) {
	s.mu.Lock()
	back, fault, lose := s.back, s.fault, s.lose
	s.mu.Unlock()
	if back != nil {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	executed = func() error { return nil }
	if fault == nil && lose == nil {
		return executed, nil
	}
	q := requestOf(r, t, body)
	if fault != nil {
		err = fault(q)
	}
	if lose != nil {
		executed = func() error { return lose(q) }
	}
	return executed, err
}
