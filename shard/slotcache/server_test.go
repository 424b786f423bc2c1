package slotcache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclientset "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

// server implements the parts of the API server that grants need: paged lists, watches, label selectors. It stores the metadata
// and the spec of objects. It rejects streaming lists. Its network is in memory, so that it can run in a bubble of synctest.
type server struct {
	// delay, if set, returns the delay of an answer or an event.
	delay func() time.Duration

	mu      sync.Mutex
	now     map[string]map[types.NamespacedName]*stored // objects by kind
	history []change                                    // all changes; the version after change i is i+1
	news    chan struct{}                               // closed when something has changed
	old     int                                         // version of lists that need not be consistent; 0 means the newest
	away    bool
	blocked map[string]bool // verb and selector of requests that are blocked
	open    map[string]int  // watches, by kind
	most    int             // watches at a time, of all kinds
	lists   int             // requested pages
	streams int             // requested streaming lists
	closed  chan struct{}   // ends the watches
}

// stored is an object. Its spec is stored as it was written.
type stored struct {
	metav1.PartialObjectMetadata

	Spec json.RawMessage `json:"spec,omitempty"`
	// NodeTemplate is set for MachineClasses, which have no spec.
	NodeTemplate json.RawMessage `json:"nodeTemplate,omitempty"`
}

func (s *stored) decodes() bool { return string(s.Spec) != undecodable }

func (s *stored) copied() *stored {
	return &stored{PartialObjectMetadata: *s.DeepCopy(), Spec: s.Spec, NodeTemplate: s.NodeTemplate}
}

// change is one write.
type change struct {
	kind          string
	before, after *stored
}

// connections is a network in memory.
type connections chan net.Conn

func (c connections) Accept() (net.Conn, error) {
	conn, ok := <-c
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (c connections) Close() error   { close(c); return nil }
func (c connections) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

// newServer starts a server, and stops it when the test ends.
func newServer(t *testing.T) (*server, machineclientset.Interface, metadata.Interface) {
	t.Helper()
	s := &server{
		now: map[string]map[types.NamespacedName]*stored{}, blocked: map[string]bool{}, open: map[string]int{},
		news: make(chan struct{}), closed: make(chan struct{}),
	}
	listener := make(connections)
	web := &http.Server{Handler: s, ReadHeaderTimeout: time.Hour, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = web.Serve(listener) }()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		client, far := net.Pipe()
		listener <- far
		return client, nil
	}}
	config, client := &rest.Config{Host: "http://memory", QPS: -1}, &http.Client{Transport: transport}
	machines, err1 := rest.RESTClientForConfigAndClient(decode.Config(config), client)
	names, err2 := metadata.NewForConfigAndClient(config, client)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = web.Close()
	})
	return s, machineclientset.New(machines), names
}

// put writes an object, or deletes it if there is no content, and returns the version.
func (s *server) put(kind string, key types.NamespacedName, content *metav1.ObjectMeta) int {
	return s.putSpec(kind, key, content, "{}")
}

// putSpec is put with a spec, or with a nodeTemplate for a MachineClass. Neither is validated.
func (s *server) putSpec(kind string, key types.NamespacedName, content *metav1.ObjectMeta, spec string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now[kind] == nil {
		s.now[kind] = map[types.NamespacedName]*stored{}
	}
	c := change{kind: kind, before: s.now[kind][key]}
	delete(s.now[kind], key)
	if content != nil {
		c.after = &stored{PartialObjectMetadata: metav1.PartialObjectMetadata{ObjectMeta: *content.DeepCopy()}, Spec: json.RawMessage(spec)}
		c.after.Namespace, c.after.Name, c.after.ResourceVersion = key.Namespace, key.Name, strconv.Itoa(len(s.history)+1)
		if kind == "machineclasses" {
			c.after.Spec, c.after.NodeTemplate = nil, c.after.Spec
		}
		s.now[kind][key] = c.after
	}
	s.history = append(s.history, c)
	s.wake()
	return len(s.history)
}

// wake wakes all waiting requests; s.mu is held.
func (s *server) wake() {
	close(s.news)
	s.news = make(chan struct{})
}

// change changes how the server behaves.
func (s *server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.wake()
}

// block blocks requests with the verb and with a selector that contains the text, until release is called.
func (s *server) block(verb, selector string) (release func()) {
	s.change(func() { s.blocked[verb+" "+selector] = true })
	return func() { s.change(func() { delete(s.blocked, verb+" "+selector) }) }
}

// breakOff ends all watches.
func (s *server) breakOff() {
	s.change(func() {
		close(s.closed)
		s.closed = make(chan struct{})
	})
}

// state returns the objects of a kind at a version; s.mu is held.
func (s *server) state(kind string, version int) map[types.NamespacedName]*stored {
	objs := map[types.NamespacedName]*stored{}
	for _, c := range s.history[:version] {
		switch {
		case c.kind != kind:
		case c.after != nil:
			objs[types.NamespacedName{Namespace: c.after.Namespace, Name: c.after.Name}] = c.after
		default:
			delete(objs, types.NamespacedName{Namespace: c.before.Namespace, Name: c.before.Name})
		}
	}
	return objs
}

// truth returns the versions of all objects of a kind in the slots: of those that can be decoded, and of the others.
func (s *server) truth(kind string, slots ...int) (versions, bad map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	versions, bad = map[string]string{}, map[string]string{}
	for key, obj := range s.now[kind] {
		switch {
		case !slices.Contains(slots, slotOf(obj)):
		case obj.decodes():
			versions[key.Name] = obj.ResourceVersion
		default:
			bad[key.Name] = obj.ResourceVersion
		}
	}
	return versions, bad
}

// watches returns the number of open watches by kind.
func (s *server) watches() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.open)
}

// request is one that the server answers.
type request struct {
	http.ResponseWriter
	*http.Request
	kind, namespace string
	selector        labels.Selector
}

func (r *request) selects(obj *stored) bool {
	return obj != nil && r.selector.Matches(labels.Set(obj.Labels)) && (r.namespace == "" || r.namespace == obj.Namespace)
}

func (r *request) refuse(code int, reason metav1.StatusReason) {
	r.Header().Set("Content-Type", "application/json")
	r.WriteHeader(code)
	r.send(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(code), Reason: reason})
}

// Header returns the header of the answer.
func (r *request) Header() http.Header { return r.ResponseWriter.Header() }

func (r *request) send(answer any) {
	r.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(r.ResponseWriter).Encode(answer)
	_ = http.NewResponseController(r.ResponseWriter).Flush()
}

// ServeHTTP answers a list or a watch.
func (s *server) ServeHTTP(w http.ResponseWriter, web *http.Request) {
	r := &request{ResponseWriter: w, Request: web}
	var err error
	query := web.URL.Query()
	path := strings.Split(strings.TrimPrefix(web.URL.Path, "/apis/machine.sapcloud.io/v1alpha1/"), "/")
	r.kind = path[len(path)-1]
	if len(path) == 3 {
		r.namespace = path[1]
	}
	r.selector, err = labels.Parse(query.Get("labelSelector"))
	s.mu.Lock()
	away := s.away
	if query.Get("sendInitialEvents") != "" {
		s.streams++
		err = errors.ErrUnsupported
	}
	s.mu.Unlock()
	switch {
	case err != nil:
		r.refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	case away:
		r.refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	case query.Get("watch") != "":
		s.watch(r)
	default:
		s.list(r)
	}
}

// list answers with a page. Its continue token is a version and the offset.
func (s *server) list(r *request) {
	query := r.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit"))
	s.mu.Lock()
	s.lists++
	version, offset := len(s.history), 0
	if query.Get("resourceVersion") != "" && s.old > 0 {
		version = s.old
	}
	if token := query.Get("continue"); token != "" {
		_, _ = fmt.Sscanf(token, "%d:%d", &version, &offset)
	}
	state := maps.Clone(s.now[r.kind])
	if version < len(s.history) {
		state = s.state(r.kind, version)
	}
	s.mu.Unlock()
	answer := struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`

		Items []stored `json:"items"`
	}{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kindNames[r.kind] + "List"}}
	answer.ResourceVersion = strconv.Itoa(version)
	byKey := func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }
	for _, key := range slices.SortedFunc(maps.Keys(state), byKey) {
		if r.selects(state[key]) {
			answer.Items = append(answer.Items, *state[key])
		}
	}
	answer.Items = answer.Items[min(offset, len(answer.Items)):]
	if limit > 0 && len(answer.Items) > limit {
		answer.Items, answer.Continue = answer.Items[:limit], fmt.Sprintf("%d:%d", version, offset+limit)
	}
	if !s.getThrough(r, "list") {
		return
	}
	if strings.Contains(r.Request.Header.Get("Accept"), "PartialObjectMetadata") {
		answer.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}
	}
	r.send(answer)
}

// getThrough waits until an answer may be sent; false means that the request has ended.
func (s *server) getThrough(r *request, verb string) bool {
	if s.delay != nil {
		select {
		case <-time.After(s.delay()):
		case <-r.Context().Done():
			return false
		}
	}
	for {
		s.mu.Lock()
		news, held := s.news, false
		for what := range s.blocked {
			if selector, ok := strings.CutPrefix(what, verb+" "); ok && strings.Contains(r.selector.String(), selector) {
				held = true
			}
		}
		s.mu.Unlock()
		if !held {
			return true
		}
		select {
		case <-news:
		case <-r.Context().Done():
			return false
		}
	}
}

// count updates the largest number of watches.
func (s *server) count() {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := 0
	for _, n := range s.open {
		all += n
	}
	s.most = max(s.most, all)
}

// watch sends the changes since a version, and then each new change.
func (s *server) watch(r *request) {
	seen, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	s.mu.Lock()
	s.open[r.kind]++
	closed := s.closed
	s.mu.Unlock()
	time.AfterFunc(1, s.count) // in a bubble: after the watches that this one replaces have ended
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open[r.kind]--
	}()
	r.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(r.ResponseWriter).Flush()
	for {
		s.mu.Lock()
		news, changes := s.news, slices.Clone(s.history[seen:])
		s.mu.Unlock()
		for _, c := range changes {
			seen++
			if what, obj := r.event(c, seen); obj != nil {
				if !s.getThrough(r, "watch") {
					return
				}
				r.send(map[string]any{"type": what, "object": obj})
			}
		}
		select {
		case <-news:
		case <-closed:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// event returns what a watch sends for a change: an object that leaves is sent in its old state with the new version.
func (r *request) event(c change, version int) (what string, obj *stored) {
	if c.kind != r.kind {
		return "", nil
	}
	switch before, after := r.selects(c.before), r.selects(c.after); {
	case before && after:
		what, obj = "MODIFIED", c.after.copied()
	case after:
		what, obj = "ADDED", c.after.copied()
	case before:
		what, obj = "DELETED", c.before.copied()
		obj.ResourceVersion = strconv.Itoa(version)
	default:
		return "", nil
	}
	obj.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kindNames[r.kind]}
	if strings.Contains(r.Request.Header.Get("Accept"), "PartialObjectMetadata") {
		obj.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	}
	return what, obj
}

var kindNames = map[string]string{"machines": "Machine", "machinesets": "MachineSet", "machineclasses": "MachineClass"}
