package objectcache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

// pods returns a source of pages with a pod each that takes 64 KiB, of which names returns the
// name: it is all that trim keeps.
func pods(pages int, events *watch.FakeWatcher) Source {
	pod := func(name string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Message: strings.Repeat("x", 64<<10)}}
	}
	return Source{
		List: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
			page := len(options.Continue)
			list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.Pod{pod(fmt.Sprint("p", page))}}
			if page+1 < pages {
				list.Continue = options.Continue + "x"
			}
			return list, nil
		},
		Watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return events, nil },
	}
}

func nameOnly(obj runtime.Object) runtime.Object {
	if pod, is := obj.(*corev1.Pod); is {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}}
	}
	return obj
}

func asItIs(obj runtime.Object) runtime.Object { return obj }

func list(t *testing.T, of Source) (items int, err error) {
	t.Helper()
	all, err := of.List(t.Context(), metav1.ListOptions{Limit: Page})
	if err != nil {
		return 0, err
	}
	accessor, err := meta.ListAccessor(all)
	if err != nil || accessor.GetContinue() != "" || accessor.GetResourceVersion() != "7" {
		t.Errorf("got a list with %v, %v, want all pages", accessor, err)
	}
	return meta.LenList(all), nil
}

// What is trimmed does not count, and sources have one memory together until they end.
func TestSourcesWithinOneMemory(t *testing.T) {
	memory := NewMemory(1 << 20)
	if items, err := list(t, pods(100, nil).Within(memory, nameOnly)); items != 100 || err != nil {
		t.Errorf("got %d trimmed objects, %v, want 100", items, err)
	}
	one, two := pods(10, nil).Within(memory, asItIs), pods(10, nil).Within(memory, asItIs)
	for range 3 { // the same list counts once
		if items, err := list(t, one); items != 10 || err != nil {
			t.Errorf("got %d objects, %v, want 10", items, err)
		}
	}
	const want = "together at most 1 MiB of memory"
	if _, err := list(t, two); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	(&ListerWatcher{Source: two}).End()
	(&ListerWatcher{Source: one}).End()
	if items, err := list(t, two); items != 10 || err != nil {
		t.Errorf("got %d objects, %v, after the end of the other source", items, err)
	}
}

// A list that has no end takes as many pages as its bound allows, or as much time.
func TestSourceWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			pause time.Duration
			empty bool
			want  func(err error) bool
			after time.Duration
		}{
			"empty pages": {0, true, func(err error) bool { return errors.As(err, new(*decode.EndlessError)) }, 0},
			"slow pages":  {time.Second, false, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }, timeOfList},
		} {
			from := pods(1<<30, nil)
			slow := from
			slow.List = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				options.Continue = ""
				page, err := from.List(ctx, options)
				if tc.empty {
					page.(*corev1.PodList).Items = nil //nolint:forcetypeassert,errcheck // it is one
				}
				select {
				case <-time.After(tc.pause):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				return page, err
			}
			begun := time.Now()
			_, err := slow.Within(NewMemory(1<<20), nameOnly).List(t.Context(), metav1.ListOptions{})
			if took := time.Since(begun); !tc.want(err) || took != tc.after {
				t.Errorf("%s: ended with %v after %s", name, err, took)
			}
		}
	})
}

// A watch ends when it has sent as much as the memory has, and counts what is trimmed of its
// events.
func TestWatchWithinAMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			trim func(runtime.Object) runtime.Object
			ends bool
		}{"trimmed": {nameOnly, false}, "as it is": {asItIs, true}} {
			events := watch.NewFakeWithChanSize(100, false)
			w, err := pods(1, events).Within(NewMemory(1<<20), tc.trim).Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			ended := false
			for range 20 {
				events.Add(&corev1.Pod{Status: corev1.PodStatus{Message: strings.Repeat("x", 64<<10)}})
				event := <-w.ResultChan()
				ended = ended || apierrors.IsResourceExpired(apierrors.FromObject(event.Object))
			}
			if ended != tc.ends {
				t.Errorf("%s: ended: %t", name, ended)
			}
			w.Stop()
		}
	})
}
