package apiserver

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclientset "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned"
)

// reach returns clients of a server, the one for built-in kinds in protobuf.
func reach(t *testing.T, s *Server) (kubernetes.Interface, machineclientset.Interface, metadata.Interface) {
	t.Helper()
	config := &rest.Config{Host: "http://memory", Transport: s, QPS: -1}
	binary := rest.CopyConfig(config)
	binary.ContentType, binary.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	core, err1 := kubernetes.NewForConfig(binary)
	machines, err2 := machineclientset.NewForConfig(config)
	names, err3 := metadata.NewForConfig(config)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return core, machines, names
}

func TestLifeCycleOfAnObject(t *testing.T) {
	s := New("s", time.Now)
	_, clients, _ := reach(t, s)
	machines := clients.MachineV1alpha1().Machines("n")
	created, err := machines.Create(t.Context(), &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: "m", Finalizers: []string{"f"}}, Status: v1alpha1.MachineStatus{LastKnownState: "s"},
	}, metav1.CreateOptions{})
	if err != nil || created.UID == "" || created.Generation != 1 || created.Status.LastKnownState != "" || created.ResourceVersion != "1" {
		t.Fatalf("created (%v): %+v", err, created)
	}
	if _, err := machines.Create(t.Context(), &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m"}},
		metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created twice: %v", err)
	}
	patch := func(content string, subresource ...string) (*v1alpha1.Machine, error) {
		return machines.Patch(t.Context(), "m", types.MergePatchType, []byte(content), metav1.PatchOptions{}, subresource...)
	}
	if m, err := patch(`{"spec":{"providerID":"p"},"status":{"lastKnownState":"s"}}`); err != nil || m.Spec.ProviderID != "p" ||
		m.Status.LastKnownState != "" || m.Generation != 2 {
		t.Errorf("spec patched (%v): %+v", err, m)
	}
	if m, err := patch(`{"spec":{"providerID":"q"},"status":{"lastKnownState":"s"}}`, "status"); err != nil || m.Spec.ProviderID != "p" ||
		m.Status.LastKnownState != "s" || m.Generation != 2 {
		t.Errorf("status patched (%v): %+v", err, m)
	}
	if m, err := patch(`{"spec":{"providerID":"p"}}`); err != nil || m.ResourceVersion != "3" {
		t.Errorf("patched without a change (%v): %+v", err, m)
	}
	for _, stale := range []string{`{"metadata":{"resourceVersion":"1"}}`, `{"metadata":{"uid":"other"}}`} {
		if _, err := patch(stale); !apierrors.IsConflict(err) {
			t.Errorf("patch %s: %v", stale, err)
		}
	}
	if _, err := machines.Update(t.Context(), created, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("updated a changed object: %v", err)
	}
	other := types.UID("other")
	if err := machines.Delete(t.Context(), "m", metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &other},
	}); !apierrors.IsConflict(err) {
		t.Errorf("another deleted: %v", err)
	}
	if err := machines.Delete(t.Context(), "m", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if m, err := machines.Get(t.Context(), "m", metav1.GetOptions{}); err != nil || m.DeletionTimestamp == nil || m.Generation != 3 {
		t.Errorf("deleted with a finalizer (%v): %+v", err, m)
	}
	if _, err := patch(`{"metadata":{"finalizers":null}}`); err != nil {
		t.Error(err)
	}
	if _, err := machines.Get(t.Context(), "m", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the last finalizer: %v", err)
	}
}

func TestBuiltInKindsInProtobuf(t *testing.T) {
	s := New("s", time.Now)
	core, _, _ := reach(t, s)
	leases := core.CoordinationV1().Leases("n")
	seconds := int32(2147483647)
	created, err := leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil || *created.Spec.LeaseDurationSeconds != seconds {
		t.Fatalf("created (%v): %+v", err, created)
	}
	if err := leases.Delete(t.Context(), "l", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &created.UID}}); err != nil ||
		s.Get("leases", "n", "l") != nil {
		t.Errorf("deleted: %v, there is %v", err, s.Get("leases", "n", "l"))
	}
	if _, err := s.Put("nodes", map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "o"},
		"spec": map[string]any{"taints": []any{map[string]any{"key": "a", "effect": "NoSchedule"}}},
	}); err != nil {
		t.Fatal(err)
	}
	patch := []byte(`{"spec":{"taints":[{"key":"b","effect":"NoSchedule"}]}}`)
	node, err := core.CoreV1().Nodes().Patch(t.Context(), "o", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil || len(node.Spec.Taints) != 1 {
		t.Errorf("patched (%v): %+v", err, node.Spec.Taints)
	}
}

func TestListsInPagesAreOfOneRevision(t *testing.T) {
	s := New("s", time.Now)
	_, _, names := reach(t, s)
	for i := range 5 {
		put(t, s, strconv.Itoa(i), "blue")
	}
	put(t, s, "5", "red")
	machines := names.Resource(v1alpha1.SchemeGroupVersion.WithResource("machines"))
	first, err := machines.List(t.Context(), metav1.ListOptions{LabelSelector: "color=blue", Limit: 3})
	if err != nil || len(first.Items) != 3 || first.Continue == "" || first.Items[0].Kind != "PartialObjectMetadata" {
		t.Fatalf("first page (%v): %+v", err, first)
	}
	s.Remove("machines", "n", "4")
	rest, err := machines.List(t.Context(), metav1.ListOptions{LabelSelector: "color=blue", Limit: 3, Continue: first.Continue})
	if err != nil || len(rest.Items) != 2 || rest.Continue != "" || rest.ResourceVersion != first.ResourceVersion {
		t.Errorf("second page (%v): %+v", err, rest)
	}
	one, err := machines.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=5"})
	if err != nil || len(one.Items) != 1 || one.Items[0].Name != "5" {
		t.Errorf("by name (%v): %+v", err, one)
	}
	s.Compact()
	if _, err := machines.List(t.Context(), metav1.ListOptions{Limit: 3, Continue: first.Continue}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a page that is too old: %v", err)
	}
}

func put(t *testing.T, s *Server, name, color string) {
	t.Helper()
	if _, err := s.Put("machines", map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
		"metadata": map[string]any{"namespace": "n", "name": name, "labels": map[string]any{"color": color}},
	}); err != nil {
		t.Fatal(err)
	}
}

func TestWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New("s", time.Now)
		_, clients, _ := reach(t, s)
		machines := clients.MachineV1alpha1().Machines("n")
		put(t, s, "a", "blue")
		from := s.Get("machines", "n", "a").GetResourceVersion()
		put(t, s, "b", "blue")
		seconds := int64(300)
		w, err := machines.Watch(t.Context(), metav1.ListOptions{
			ResourceVersion: from, LabelSelector: "color=blue", TimeoutSeconds: &seconds, AllowWatchBookmarks: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		var seen []string
		done := make(chan struct{})
		begun := time.Now()
		go func() {
			defer close(done)
			for event := range w.ResultChan() {
				m, _ := event.Object.(*v1alpha1.Machine)
				seen = append(seen, string(event.Type)+" "+m.Name)
			}
		}()
		synctest.Wait()
		s.Edit("machines", "n", "a", func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"color": "red"}) })
		s.Edit("machines", "n", "a", func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"color": "blue"}) })
		s.Remove("machines", "n", "b")
		time.Sleep(90 * time.Second) // a bookmark is sent after one minute
		s.Compact()
		put(t, s, "c", "blue")
		<-done
		want := []string{"ADDED b", "DELETED a", "ADDED a", "DELETED b", string(watch.Bookmark) + " ", "ADDED c"}
		if len(seen) < len(want) || !slices.Equal(seen[:len(want)], want) || time.Since(begun) != 300*time.Second {
			t.Errorf("seen in %s: %q, want at first %q", time.Since(begun), seen, want)
		}
		w, err = machines.Watch(t.Context(), metav1.ListOptions{ResourceVersion: from})
		if err == nil {
			w.Stop()
		}
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("a watch from before the compaction: %v", err)
		}
	})
}

// Watches of built-in kinds and of metadata show objects in protobuf, as an API server's do.
func TestWatchesInProtobuf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New("s", time.Now)
		core, _, names := reach(t, s)
		node := func(zone string) map[string]any {
			return map[string]any{
				"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "node", "labels": map[string]any{"zone": zone}},
				"spec": map[string]any{"providerID": "id"},
			}
		}
		options := metav1.ListOptions{LabelSelector: "zone=a", AllowWatchBookmarks: true}
		whole, err1 := core.CoreV1().Nodes().Watch(t.Context(), options)
		partial, err2 := names.Resource(corev1.SchemeGroupVersion.WithResource("nodes")).Watch(t.Context(), options)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		for _, zone := range []string{"a", "a", "b"} {
			if _, err := s.Put("nodes", node(zone)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(90 * time.Second) // a bookmark is sent after one minute
		for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark} {
			shown, metadata := <-whole.ResultChan(), <-partial.ResultChan()
			n, isNode := shown.Object.(*corev1.Node)
			m, isPartial := metadata.Object.(*metav1.PartialObjectMetadata)
			if !isNode || !isPartial || shown.Type != want || metadata.Type != want || n.ResourceVersion != m.ResourceVersion || m.Name != n.Name ||
				want != watch.Bookmark && n.Spec.ProviderID != "id" {
				t.Errorf("got %v and %v, want %s of the Node and of its metadata", shown, metadata, want)
			}
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/nodes?watch=1", nil)
		r.Header.Set("Accept", runtime.ContentTypeProtobuf)
		answer, err := s.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close() //nolint:errcheck // it does not fail
		if got := answer.Header.Get("Content-Type"); !strings.HasPrefix(got, runtime.ContentTypeProtobuf) {
			t.Errorf("the content type is %q, want protobuf", got)
		}
		whole.Stop()
		partial.Stop()
	})
}

func TestTrimEndsWatchesThatAreBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New("s", time.Now)
		get := func(query string) (int, io.Reader) {
			answer, err := s.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/"+query, nil))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = answer.Body.Close() })
			return answer.StatusCode, answer.Body
		}
		node := func(name string) {
			s.AddJSON("nodes", `{"kind":"Node","apiVersion":"v1","metadata":{"name":"`+name+`"}}`)
		}
		node("a")
		_, behind := get("nodes?watch=1&resourceVersion=1")
		_, idle := get("pods?watch=1&resourceVersion=1&allowWatchBookmarks=true")
		node("b")
		bookmark := make([]byte, 1000)
		n, err := idle.Read(bookmark) // after a minute
		if err != nil || !strings.Contains(string(bookmark[:n]), `"resourceVersion":"2"`) {
			t.Errorf("the bookmark of a watch without events (%v): %s", err, bookmark[:n])
		}
		time.Sleep(10 * time.Minute)
		node("c")
		s.Trim(time.Minute)
		if _, err := behind.Read(bookmark); !errors.Is(err, io.EOF) {
			t.Errorf("read of a watch whose next change was removed: %v", err)
		}
		for from, status := range map[string]int{"1": http.StatusGone, "2": http.StatusOK} {
			if got, _ := get("nodes?watch=1&resourceVersion=" + from); got != status {
				t.Errorf("watch from %s: expected %d, got %d", from, status, got)
			}
		}
	})
}

func TestRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New("s", time.Now)
		_, clients, _ := reach(t, s)
		put(t, s, "a", "blue")
		saved := s.Save()
		put(t, s, "b", "blue")
		w, err := clients.MachineV1alpha1().Machines("n").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.Restore(saved)
		for range w.ResultChan() { // it ends
		}
		if s.Get("machines", "n", "b") != nil || s.Get("machines", "n", "a") == nil {
			t.Errorf("restored: %v", s.List("machines"))
		}
	})
}

func TestEventDelayedDuringRestoreIsNotShown(t *testing.T) {
	for range 30 { // a watch that may continue and has ended does either at random
		s := New("s", time.Now)
		put(t, s, "a", "blue")
		answer, err := s.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet,
			"/apis/machine.sapcloud.io/v1alpha1/machines?watch=true", http.NoBody))
		if err != nil {
			t.Fatal(err)
		}
		events, isWatch := answer.Body.(*Events)
		if !isWatch {
			t.Fatalf("answer to a watch: %T", answer.Body)
		}
		released := make(chan struct{})
		events.Delay = func() (<-chan struct{}, time.Duration) {
			if isClosed(released) {
				return nil, 0
			}
			s.Restore(Snapshot{})
			close(released)
			return released, time.Minute
		}
		shown, err := io.ReadAll(events)
		if len(shown) > 0 || err != nil {
			t.Fatalf("shown after the restore (%v): %s", err, shown)
		}
		_ = answer.Body.Close()
	}
}
