package namespaces

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
)

func TestMain(m *testing.M) { bubbles.Main(m) }

const key = "fleet.machine.sapcloud.io/hold-deletions"

// world is a control cluster, and Namespaces that watch it.
type world struct {
	server *apiserver.Server
	*Namespaces

	refuse atomic.Int32 // the HTTP status of all answers; 0 for those of the server
	mu     sync.Mutex
	told   []string // namespaces that were reported
	paths  []string // of requests
	logs   ktesting.Buffer
}

// RoundTrip answers a request.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.paths = append(w.paths, r.URL.Path+"?"+r.URL.Query().Get("fieldSelector"))
	w.mu.Unlock()
	if code := int(w.refuse.Load()); code != 0 {
		reason := map[int]string{http.StatusForbidden: "Forbidden", http.StatusInternalServerError: "InternalError"}[code]
		return &http.Response{
			StatusCode: code, ProtoMajor: 2, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
			Body: http.NoBody, Status: reason,
		}, nil
	}
	return w.server.RoundTrip(r)
}

// reported returns the namespaces that were reported since the last call.
func (w *world) reported() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	told := w.told
	w.told = nil
	slices.Sort(told)
	return told
}

func (w *world) annotate(t *testing.T, namespace, key, value string) {
	t.Helper()
	if !w.server.Edit("namespaces", "", namespace, func(u *unstructured.Unstructured) {
		annotations := u.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		if annotations[key] = value; value == "" {
			delete(annotations, key)
		}
		u.SetAnnotations(annotations)
	}) {
		t.Fatalf("no Namespace %s", namespace)
	}
}

func newWorld(t *testing.T, only string) *world {
	t.Helper()
	w := &world{server: apiserver.New("control", time.Now)}
	for _, name := range []string{"a", "b"} {
		_, err := w.server.Put("namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
		if err != nil {
			t.Fatal(err)
		}
	}
	client, err := metadata.NewForConfig(&rest.Config{Host: "http://control", Transport: w, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	if w.Namespaces, err = New(client, only, labels.Everything()); err != nil {
		t.Fatal(err)
	}
	w.OnChange(func(namespace string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.told = append(w.told, namespace)
	})
	return w
}

// run runs f while the Namespaces are watched.
func (w *world) run(t *testing.T, f func()) {
	t.Helper()
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	defer func() {
		stop()
		running.Wait()
		if sink, ok := logger.GetSink().(ktesting.Underlier); ok {
			w.logs = sink.GetBuffer()
		}
	}()
	f()
}

func TestAnnotationsAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "")
		w.annotate(t, "a", key, "maintenance")
		if w.Known() {
			t.Error("known before the first list")
		}
		w.run(t, func() {
			time.Sleep(time.Second)
			if got := w.reported(); !w.Known() || !slices.Equal(got, []string{"", "a"}) {
				t.Errorf("after the first list: known %v, reported %q", w.Known(), got)
			}
			if value, ok := w.Annotation("a", key); !ok || value != "maintenance" {
				t.Errorf("a has %q, %v", value, ok)
			}
			if value, ok := w.Annotation("b", key); ok {
				t.Errorf("b has %q", value)
			}
			w.annotate(t, "b", key, "x")
			w.annotate(t, "a", key, "")
			if got := w.reported(); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("after edits: reported %q", got)
			}
			if value, ok := w.Annotation("a", key); ok {
				t.Errorf("a still has %q", value)
			}
			w.annotate(t, "b", "other.io/note", "y")
			if got := w.reported(); len(got) > 0 {
				t.Errorf("an annotation of others has changed: reported %q", got)
			}
			if value, ok := w.Annotation("b", "other.io/note"); ok {
				t.Errorf("an annotation of others is stored: %q", value)
			}
			w.server.Remove("namespaces", "", "b")
			if got := w.reported(); !slices.Equal(got, []string{"b"}) {
				t.Errorf("deleted: reported %q", got)
			}
		})
	})
}

func TestOneNamespaceIsWatchedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.annotate(t, "a", key, "x")
		w.annotate(t, "b", key, "x")
		w.run(t, func() {
			time.Sleep(time.Second)
			if _, ok := w.Annotation("a", key); !ok {
				t.Error("the annotation of the Namespace that is served is not known")
			}
			if _, ok := w.Annotation("b", key); ok {
				t.Error("another Namespace is known")
			}
		})
		want := slices.Repeat([]string{"/api/v1/namespaces?metadata.name=a"}, len(w.paths))
		if diff := cmp.Diff(want, w.paths); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// Without the right to list and watch the annotations are not known, also where they were before,
// which is logged once for each such time.
func TestForbiddenListIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "")
		w.annotate(t, "a", key, "x")
		w.refuse.Store(http.StatusForbidden)
		w.run(t, func() {
			time.Sleep(10 * time.Minute)
			if got := w.reported(); w.Known() || !w.Denied() || !slices.Equal(got, []string{""}) {
				t.Errorf("forbidden: known %v, denied %v, reported %q", w.Known(), w.Denied(), got)
			}
			w.refuse.Store(0)
			time.Sleep(time.Minute)
			if got := w.reported(); !w.Known() || w.Denied() || !slices.Contains(got, "") || !slices.Contains(got, "a") {
				t.Errorf("granted: known %v, denied %v, reported %q", w.Known(), w.Denied(), got)
			}
			w.refuse.Store(http.StatusForbidden)
			w.server.Restore(w.server.Save()) // it ends all watches
			time.Sleep(10 * time.Minute)
			if got := w.reported(); w.Known() || !slices.Equal(got, []string{""}) {
				t.Errorf("forbidden again: known %v, reported %q", w.Known(), got)
			}
			w.annotate(t, "b", key, "y")
			w.refuse.Store(0)
			time.Sleep(time.Minute)
			if value, _ := w.Annotation("b", key); !w.Known() || value != "y" {
				t.Errorf("granted again: known %v, the annotation is %q", w.Known(), value)
			}
		})
		if n := strings.Count(w.logs.String(), "Namespaces cannot be read"); n != 2 {
			t.Errorf("logged %d times, want once each time:\n%s", n, w.logs.String())
		}
	})
}

// While the API server does not answer, annotations are unknown until the first list, and then
// those that were read last.
func TestAnswersThatAreMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "")
		w.annotate(t, "a", key, "x")
		w.refuse.Store(http.StatusInternalServerError)
		w.run(t, func() {
			time.Sleep(10 * time.Minute)
			if got := w.reported(); w.Known() || len(got) > 0 {
				t.Errorf("no list was answered: known %v, reported %q", w.Known(), got)
			}
			w.refuse.Store(0)
			time.Sleep(time.Minute)
			w.refuse.Store(http.StatusInternalServerError)
			w.server.Restore(w.server.Save()) // it ends all watches
			time.Sleep(10 * time.Minute)
			if _, ok := w.Annotation("a", key); !w.Known() || !ok {
				t.Errorf("the server is away: known %v, annotation %v; want what was read last", w.Known(), ok)
			}
		})
	})
}

// A Namespace of which nothing is known is neither selected nor not.
func TestSelectionByLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "")
		if selected, known := w.Selected("a"); !selected || !known {
			t.Error("without a selector a Namespace is not selected")
		}
		w.selector = labels.SelectorFromSet(labels.Set{"fleet": "one"})
		label := func(fleet string) {
			w.server.Edit("namespaces", "", "a", func(u *unstructured.Unstructured) {
				u.SetLabels(map[string]string{"fleet": fleet, "other": fleet})
			})
		}
		label("one")
		if selected, known := w.Selected("a"); selected || known {
			t.Error("known before the first list")
		}
		w.run(t, func() {
			time.Sleep(time.Second)
			for _, step := range []struct {
				fleet    string
				reported []string
				selected bool
			}{{"one", []string{"", "a"}, true}, {"two", []string{"a"}, false}, {"three", nil, false}, {"one", []string{"a"}, true}} {
				label(step.fleet)
				reported := w.reported()
				selected, known := w.Selected("a")
				if selected != step.selected || !known || !slices.Equal(reported, step.reported) {
					t.Errorf("labeled for %s: selected %v, known %v, reported %q", step.fleet, selected, known, reported)
				}
			}
			if selected, known := w.Selected("b"); selected || !known {
				t.Errorf("without a label: selected %v, known %v", selected, known)
			}
			w.server.Remove("namespaces", "", "a")
			if reported := w.reported(); !slices.Equal(reported, []string{"a"}) {
				t.Errorf("deleted: reported %q", reported)
			}
			if selected, known := w.Selected("a"); selected || known {
				t.Errorf("deleted: selected %v, known %v", selected, known)
			}
		})
	})
}

// Every replica stores all Namespaces, so little is kept of each.
func TestLittleIsKept(t *testing.T) {
	whole := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "a", UID: "u", ResourceVersion: "1", Labels: map[string]string{"l": "x", "fleet": "y"}, Finalizers: []string{"f"},
		Annotations: map[string]string{key: "x", "other": strings.Repeat("x", 10_000)},
	}}
	n := &Namespaces{selector: labels.SelectorFromSet(labels.Set{"fleet": "one"})}
	got, err := n.essential(whole)
	want := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "a", UID: "u", ResourceVersion: "1", Labels: map[string]string{"fleet": "y"}, Annotations: map[string]string{key: "x"},
	}}
	if diff := cmp.Diff(any(want), got); diff != "" || err != nil {
		t.Errorf("kept (%v, -want +got):\n%s", err, diff)
	}
	if _, err := n.essential(fmt.Stringer(nil)); err != nil {
		t.Error(err)
	}
}
