package slotcache

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// server is an API server whose answers are delayed and blocked, and whose lists and watches are
// counted. It rejects streaming lists.
type server struct {
	*apiserver.Server

	// delay, if set, returns the delay of an answer or an event.
	delay func() time.Duration

	mu      sync.Mutex
	news    chan struct{}   // closed when something has changed
	away    bool            // it answers that it is not available
	blocked map[string]bool // verb and selector of requests that are blocked
	open    map[string]int  // watches, by kind
	watched []*shown        // all watches that ever began
	most    int             // watches at a time, of all kinds
	lists   int             // requested pages
	lax     int             // lists that need not be consistent: an API server may answer them from a cache that is behind
	streams int             // requested streaming lists
}

// newServer returns a server and its clients.
func newServer(t *testing.T) (*server, machineclient.MachineV1alpha1Interface, metadata.Interface) {
	t.Helper()
	s := &server{Server: apiserver.New("s", time.Now), blocked: map[string]bool{}, open: map[string]int{}, news: make(chan struct{})}
	s.Fault(s.admit)
	s.Lose(func(r apiserver.Request) error {
		if r.Verb == "list" {
			return s.getThrough(r)
		}
		return nil
	})
	clients := apiserver.ClientsThrough(s)
	return s, clients.Machines, clients.Metadata
}

// put writes an object, or deletes it if there is no content.
func (s *server) put(kind string, key types.NamespacedName, content *metav1.ObjectMeta) {
	s.putSpec(kind, key, content, "{}")
}

// putSpec is put with a spec, or with a nodeTemplate for a MachineClass. Neither is validated.
func (s *server) putSpec(kind string, key types.NamespacedName, content *metav1.ObjectMeta, spec string) {
	if content == nil {
		s.Remove(kind, key.Namespace, key.Name)
		return
	}
	field := "spec"
	if kind == "machineclasses" {
		field = "nodeTemplate"
	}
	kindNames := map[string]string{"machines": "Machine", "machinesets": "MachineSet", "machineclasses": "MachineClass"}
	about := content.DeepCopy()
	about.Namespace, about.Name = key.Namespace, key.Name
	raw, _ := json.Marshal(map[string]any{ // all of it can be encoded
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": kindNames[kind], "metadata": about, field: json.RawMessage(spec),
	})
	document := map[string]any{}
	if err := json.Unmarshal(raw, &document); err != nil {
		panic(err)
	}
	if _, err := s.Put(kind, document); err != nil {
		panic(err)
	}
}

// change changes how the server behaves.
func (s *server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.news)
	s.news = make(chan struct{})
}

// block blocks requests with the verb and with a selector that contains the text, until release is
// called.
func (s *server) block(verb, selector string) (release func()) {
	s.change(func() { s.blocked[verb+" "+selector] = true })
	return func() { s.change(func() { delete(s.blocked, verb+" "+selector) }) }
}

// isBlocked returns the channel that is closed when that may have changed; nil when a request is
// not blocked.
func (s *server) isBlocked(verb, selector string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	for what := range s.blocked {
		if part, ok := strings.CutPrefix(what, verb+" "); ok && strings.Contains(selector, part) {
			return s.news
		}
	}
	return nil
}

// breakOff ends all watches.
func (s *server) breakOff() {
	s.mu.Lock()
	all := s.watched
	s.watched = nil
	s.mu.Unlock()
	for _, w := range all {
		_ = w.Events.Close()
	}
}

// truth returns the versions of all objects of a kind in the slots: of those that can be decoded,
// and of the others.
func (s *server) truth(kind string, slots ...int) (versions, bad map[string]string) {
	versions, bad = map[string]string{}, map[string]string{}
	for _, o := range s.List(kind) {
		_, isBad, _ := unstructured.NestedString(o.Object, "spec", "drainTimeout")
		switch {
		case !slices.Contains(slots, slotOf(o)):
		case isBad:
			bad[o.GetName()] = o.GetResourceVersion()
		default:
			versions[o.GetName()] = o.GetResourceVersion()
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

// admit rejects requests, and counts lists.
func (s *server) admit(r apiserver.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	query := r.URL.Query()
	if query.Get("sendInitialEvents") != "" {
		s.streams++
		return apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("List").GroupKind(), "", nil)
	}
	if s.away {
		return apierrors.NewServiceUnavailable("away")
	}
	if r.Verb == "list" {
		s.lists++
		if query.Get("resourceVersion") != "" {
			s.lax++
		}
	}
	return nil
}

// getThrough waits until a list may be answered. Errors: the request has ended.
func (s *server) getThrough(r apiserver.Request) error {
	var late <-chan time.Time
	if s.delay != nil {
		late = time.After(s.delay())
	}
	for {
		blocked := s.isBlocked(r.Verb, r.URL.Query().Get("labelSelector"))
		switch {
		case late != nil:
			select {
			case <-late:
				late = nil
			case <-r.Context().Done():
				return r.Context().Err()
			}
		case blocked == nil:
			return nil
		default:
			select {
			case <-blocked:
			case <-r.Context().Done():
				return r.Context().Err()
			}
		}
	}
}

// shown is a watch.
type shown struct {
	*apiserver.Events

	ended func()
}

// Read is io.Reader's. The end of a watch that was broken off is that of any other.
func (w *shown) Read(p []byte) (int, error) {
	n, err := w.Events.Read(p)
	if errors.Is(err, io.ErrClosedPipe) {
		err = io.EOF
	}
	return n, err
}

// Close is io.Closer's.
func (w *shown) Close() error {
	w.ended()
	return w.Events.Close()
}

// RoundTrip delays and counts the watches.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.Server.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	events, isWatch := answer.Body.(*apiserver.Events)
	if !isWatch {
		return answer, nil
	}
	kind, selector := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:], r.URL.Query().Get("labelSelector")
	if s.delay != nil {
		events.Lag = func(time.Time) time.Time { return time.Now().Add(s.delay()) }
	}
	events.Delay = func() (<-chan struct{}, time.Duration) { return s.isBlocked("watch", selector), math.MaxInt64 }
	w := &shown{Events: events, ended: sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open[kind]--
	})}
	answer.Body = w
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[kind]++
	s.watched = append(s.watched, w)
	time.AfterFunc(1, s.count) // in a bubble: after the watches that this one replaces have ended
	return answer, nil
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
