package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

var _ http.RoundTripper = (*Server)(nil)

// RoundTrip answers one request at once, with the whole answer, or with a watch.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	q, err := requestOf(r)
	if err != nil {
		return failure(r, err)
	}
	return s.serve(q)
}

// ServeHTTP serves what RoundTrip answers, for tests of connections.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := s.RoundTrip(r)
	if err != nil {
		return
	}
	defer func() { _ = answer.Body.Close() }()
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	_ = http.NewResponseController(w).Flush()
	_, _ = io.Copy(w, answer.Body)
}

// serve answers one request, with the time of the server's clock.
func (s *Server) serve(q Request) (*http.Response, error) {
	given, err := s.answerTo(q)
	if err == nil {
		given.Header.Set("Date", s.now().UTC().Format(http.TimeFormat))
	}
	return given, err
}

func (s *Server) answerTo(q Request) (*http.Response, error) {
	executed, err := s.admit(q)
	if err != nil {
		return failure(q.Request, err)
	}
	given := s.execute(q.Request, q.target, q.Content)
	if err := executed(); err != nil {
		_ = given.Body.Close()
		return failure(q.Request, err)
	}
	return given, nil
}

// execute executes one request, and returns its answer.
func (s *Server) execute(r *http.Request, t target, body []byte) *http.Response {
	if r.Method == http.MethodGet && t.Name == "" {
		return s.many(r, t)
	}
	var found *Object
	var err error
	status := http.StatusOK
	switch r.Method {
	case http.MethodGet:
		if found = s.Get(t.resource, t.Namespace, t.Name); found == nil {
			err = apierrors.NewNotFound(t.groupResource(), t.Name)
		}
	case http.MethodPost:
		status = http.StatusCreated
		found, err = s.create(t, body)
	case http.MethodPut:
		found, err = s.update(t, body)
	case http.MethodPatch:
		found, err = s.patch(t, types.PatchType(r.Header.Get("Content-Type")), body)
	case http.MethodDelete:
		found, err = s.delete(t, body, r.URL.Query().Get("dryRun") != "")
	default:
		err = apierrors.NewMethodNotSupported(t.groupResource(), r.Method)
	}
	if err != nil {
		return refusal(r, err)
	}
	return answer(r, status, io.NopCloser(bytes.NewReader(found.bytes(isPartial(r)))))
}

// many answers a list or a watch.
func (s *Server) many(r *http.Request, t target) *http.Response {
	query := r.URL.Query()
	selected := selection{namespace: t.Namespace, partial: isPartial(r)}
	var err1, err2 error
	selected.labels, err1 = labels.Parse(query.Get("labelSelector"))
	selected.fields, err2 = parseFields(query.Get("fieldSelector"))
	if err := errors.Join(err1, err2); err != nil {
		return refusal(r, apierrors.NewBadRequest(err.Error()))
	}
	if isWatch(query) {
		body, err := s.watch(r, t, selected, query)
		if err != nil {
			return refusal(r, err)
		}
		a := answer(r, http.StatusOK, body)
		if body.binary {
			a.Header.Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
		}
		return a
	}
	list, err := s.page(t, selected, query)
	if err != nil {
		return refusal(r, err)
	}
	return answer(r, http.StatusOK, io.NopCloser(bytes.NewReader(list)))
}

// page is one page of a list, in its current version, or in that of the first page.
func (s *Server) page(t target, selected selection, query url.Values) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := pages{revision: s.revision}
	if token := query.Get("continue"); token != "" {
		remaining, known := s.pages[token]
		if !known {
			return nil, apierrors.NewResourceExpired("the continue parameter is too old")
		}
		p = remaining
	} else {
		p.rest = s.selected(t.resource, selected)
	}
	limit, _ := strconv.Atoi(query.Get("limit")) // a missing one is 0
	shown, token := p.rest, ""
	if limit > 0 && limit < len(shown) {
		shown = shown[:limit]
		token = fmt.Sprintf("%d-%d", p.revision, len(s.pages))
		s.pages[token] = pages{revision: p.revision, rest: p.rest[limit:]}
	}
	var list bytes.Buffer
	apiVersion, kind := t.group.String(), t.kind.name+"List"
	if selected.partial {
		apiVersion, kind = metav1.SchemeGroupVersion.String(), partialKind+"List"
	}
	fmt.Fprintf(&list, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d","continue":%q},"items":[`,
		kind, apiVersion, p.revision, token)
	for i, o := range shown {
		if i > 0 {
			list.WriteByte(',')
		}
		list.Write(o.bytes(selected.partial))
	}
	list.WriteString("]}")
	return list.Bytes(), nil
}

func isWatch(query url.Values) bool { return query.Get("watch") == "true" || query.Get("watch") == "1" }

// isPartial reports whether a client requests metadata only.
func isPartial(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as="+partialKind)
}

func answer(r *http.Request, status int, body io.ReadCloser) *http.Response {
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/2.0", ProtoMajor: 2, ContentLength: -1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: body,
	}
}

// failure returns the answer of a request that fails with an error: its status, or none.
func failure(r *http.Request, err error) (*http.Response, error) {
	if known := apierrors.APIStatus(nil); errors.As(err, &known) {
		return refusal(r, err), nil
	}
	return nil, err
}

// refusal returns an answer with a Status.
func refusal(r *http.Request, err error) *http.Response {
	status := statusOf(err)
	return answer(r, int(status.Code), io.NopCloser(bytes.NewReader(encodeStatus(status))))
}

func statusOf(err error) metav1.Status {
	if known := apierrors.APIStatus(nil); errors.As(err, &known) {
		return known.Status()
	}
	return apierrors.NewInternalError(err).Status()
}

func encodeStatus(status metav1.Status) []byte {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	raw, _ := json.Marshal(status) // all of it can be encoded
	return raw
}
