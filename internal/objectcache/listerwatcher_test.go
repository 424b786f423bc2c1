package objectcache

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"
)

// A reflector requests any version in the cache, and the next page by a token.
func TestListIsConsistentForAllOptions(t *testing.T) {
	var listed, watched metav1.ListOptions
	l := &ListerWatcher{Selector: "a=b", Source: Source{
		List: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
			listed = options
			return &corev1.PodList{}, nil
		},
		Watch: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			watched = options
			return watch.NewFake(), nil
		},
	}}
	requested := metav1.ListOptions{
		ResourceVersion: "0", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, Limit: 5, Continue: "next",
	}
	if _, err := l.ListWithContext(t.Context(), requested); err != nil {
		t.Fatal(err)
	}
	if want := (metav1.ListOptions{LabelSelector: "a=b", Limit: 5, Continue: "next"}); listed != want {
		t.Errorf("listed with %v, want %v", listed, want)
	}
	if _, err := l.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "7"}); err != nil {
		t.Fatal(err)
	}
	if want := (metav1.ListOptions{LabelSelector: "a=b", ResourceVersion: "7"}); watched != want {
		t.Errorf("watched with %v, want %v", watched, want)
	}
	if !watchlist.DoesClientNotSupportWatchListSemantics(l) {
		t.Error("lists would be streamed")
	}
}

// A watch that ends on purpose while its request is under way, as where the watches of a replica
// are merged, reports no error.
func TestWatchStoppedInItsRequestReportsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		logger := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
		store := NewStore[*corev1.Pod]()
		go Watch(ctx, "pods", Source{
			List: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return &corev1.PodList{}, nil },
			Watch: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
		}, "", &Mirror[*corev1.Pod]{Store: store, Mine: store.Each})
		synctest.Wait()
		stop()
		synctest.Wait()
		if diff := cmp.Diff([]string(nil), lines); diff != "" {
			t.Errorf("lines of the log (-want +got):\n%s", diff)
		}
	})
}

// A list fails that is too large with all of its pages, and so does a watch that has sent as much
// since the list.
func TestSourceHasABound(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"large": string(make([]byte, 300<<10))}}}
	events := watch.NewFake()
	pages, read := 0, 0
	source := Source{
		List: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			list := &corev1.PodList{Items: []corev1.Pod{*pod}}
			if read++; read < pages {
				list.Continue = "next"
			}
			return list, nil
		},
		Watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return events, nil },
	}.AtMost(1 << 20)
	for _, pages = range []int{3, 100, 1} {
		read = 0
		if _, err := source.List(t.Context(), metav1.ListOptions{}); (err == nil) != (pages <= 3) || read != min(pages, 4) {
			t.Errorf("%d pages: read %d, %v", pages, read, err)
		}
	}
	w, err := source.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var got []watch.EventType
	for range 4 {
		events.Add(pod)
		got = append(got, (<-w.ResultChan()).Type)
	}
	if diff := cmp.Diff([]watch.EventType{watch.Added, watch.Added, watch.Added, watch.Error}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
