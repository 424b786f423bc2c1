package objectcache

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/watchlist"
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
	requested := metav1.ListOptions{ResourceVersion: "0", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, Limit: 5, Continue: "next"}
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
