//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// recording is the versions of a test's pods and of all VolumeAttachments, in order. They are read
// from two watches, and ordered by their revisions, which are those of the one etcd of a lab.
type recording struct {
	mu      sync.Mutex
	moments []moment
	broken  error
}

// moment is one version of an object.
type moment struct {
	revision uint64
	seen     time.Time
	object   metav1.Object
	gone     bool // it is the last version of an object that was removed
	listed   bool // it is from before the recording
}

// pod returns the pod of the moment, or nil.
func (m moment) pod() *corev1.Pod { p, _ := m.object.(*corev1.Pod); return p }

// attachment returns the VolumeAttachment of the moment, or nil.
func (m moment) attachment() *storagev1.VolumeAttachment {
	a, _ := m.object.(*storagev1.VolumeAttachment)
	return a
}

// record starts a recording, with the existing objects.
func (s *space) record() *recording {
	s.Helper()
	r := &recording{}
	pods, attachments := s.lab.Target.CoreV1().Pods(s.name), s.lab.Target.StorageV1().VolumeAttachments()
	follow(s, r, pods.List, pods.Watch)
	follow(s, r, attachments.List, attachments.Watch)
	return r
}

func follow[L runtime.Object](s *space, r *recording, list func(context.Context, metav1.ListOptions) (L, error),
	begin func(context.Context, metav1.ListOptions) (watch.Interface, error),
) {
	s.Helper()
	there, err := list(s.Context(), metav1.ListOptions{})
	s.must(err)
	s.must(meta.EachListItem(there, func(o runtime.Object) error {
		r.add(moment{listed: true}, o)
		return nil
	}))
	all, err := meta.ListAccessor(there)
	s.must(err)
	w, err := harness.Watch(s.Context(), all.GetResourceVersion(), begin)
	s.must(err)
	go func() {
		for e := range w.ResultChan() {
			r.add(moment{gone: e.Type == watch.Deleted}, e.Object)
		}
	}()
}

func (r *recording) add(m moment, o runtime.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	if m.object, err = meta.Accessor(o); err == nil {
		m.revision, err = strconv.ParseUint(m.object.GetResourceVersion(), 10, 64)
	}
	if err != nil {
		r.broken = errors.Join(r.broken, fmt.Errorf("a watch returned %v: %w", o, err))
		return
	}
	m.seen = time.Now()
	r.moments = append(r.moments, m)
}

// play returns what has happened so far, and an error if the recording has gaps.
func (r *recording) play() ([]moment, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	moments := slices.Clone(r.moments)
	slices.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.revision, b.revision) })
	return moments, r.broken
}

// shown returns what a film shows of one kind of objects, without their initial versions.
func shown[T metav1.Object](s *space, film *recording) (objects []T, moments []moment) {
	s.Helper()
	all, err := film.play()
	s.must(err)
	for _, m := range all {
		if object, is := m.object.(T); is && !m.listed {
			objects, moments = append(objects, object), append(moments, m)
		}
	}
	return objects, moments
}
