package apiserver

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	target target
}

// What returns verb, resource and subresource: "patch machines/status".
func (r Request) What() string {
	return strings.TrimSuffix(r.Verb+" "+r.Resource+"/"+r.Subresource, "/")
}

// IsMetadata reports whether only the metadata of objects is requested.
func (r Request) IsMetadata() bool { return isPartial(r.Request) }

func (r Request) matches(pattern string) bool {
	matches, _ := path.Match(pattern, r.What())
	return matches
}

// requestOf returns a request with what its path, its query and its body say about it. Errors:
// those of targetOf and of reading the body.
func requestOf(r *http.Request) (Request, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil {
			return Request{}, fmt.Errorf("read the body: %w", err)
		}
	}
	t, err := targetOf(r.URL)
	if err != nil {
		return Request{}, err
	}
	q := Request{Request: r, Resource: t.resource, Subresource: t.subresource, Namespace: t.Namespace, Name: t.Name, Content: body, target: t}
	switch {
	case r.Method == http.MethodPost:
		q.Verb = "create"
		var created metav1.PartialObjectMetadata
		if document, err := decodeBody(body); err == nil && q.Name == "" {
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
	return q, nil
}

// Fault has the server call f before each request from now on. If f returns an error, the request
// is not executed: the answer is the error's status, or none if it has no status. f may wait, until
// the request ends at the latest. Nil ends that.
func (s *Server) Fault(f func(r Request) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Lose has the server call f after each request from now on that was executed. If f returns an
// error, that is the answer instead, as that of Fault: the client does not know that the request
// has taken effect. Nil ends that.
func (s *Server) Lose(f func(r Request) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose = f
}

// Away makes the server stop answering, or answer again. Requests that arrive while it is away are
// never executed, and watches show what they have missed when it is back.
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

// Refuse makes the server answer requests that match a pattern of path.Match, such as "patch nodes"
// or "* secrets", with an error, as Fault does and in its place.
func (s *Server) Refuse(pattern string, err error) {
	s.Fault(func(r Request) error {
		if r.matches(pattern) {
			return err
		}
		return nil
	})
}

// Requests returns the requests so far, rejected or not, of a server that records them.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Forget removes what was recorded so far.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// Log returns what was requested, as What has it, of each of the Requests.
func (s *Server) Log() (requests []string) {
	for _, r := range s.Requests() {
		requests = append(requests, r.What())
	}
	return requests
}

// Sent returns the bodies of the Requests that match one of the patterns, as those of Refuse.
func (s *Server) Sent(patterns ...string) (bodies []string) {
	for _, r := range s.Requests() {
		if slices.ContainsFunc(patterns, r.matches) {
			bodies = append(bodies, string(r.Content))
		}
	}
	return bodies
}

// Count returns how many of the Requests match one of the patterns, as those of Refuse.
func (s *Server) Count(patterns ...string) int { return len(s.Sent(patterns...)) }

// Writes counts the Requests that may have changed something.
func (s *Server) Writes() int { return len(s.Requests()) - s.Count("get *", "list *", "watch *") }

// admit returns the error of a request that is not executed, and what follows one that is.
func (s *Server) admit(q Request) (executed func() error, err error) {
	s.mu.Lock()
	back, fault, lose := s.back, s.fault, s.lose
	if s.records {
		s.requests = append(s.requests, q)
	}
	s.mu.Unlock()
	if back != nil {
		<-q.Context().Done()
		return nil, q.Context().Err()
	}
	executed = func() error { return nil }
	if fault != nil {
		err = fault(q)
	}
	if lose != nil {
		executed = func() error { return lose(q) }
	}
	return executed, err
}
