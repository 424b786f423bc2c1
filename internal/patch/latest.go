package patch

import (
	"encoding/json"
	"maps"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectversion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
)

// Latest remembers objects that this process has written and its informers do not show yet. It is
// safe for concurrent use.
type Latest[T metav1.Object] struct {
	turns pacing.Turns[types.UID] // of patches: two of one version would conflict

	mu      sync.Mutex
	written map[types.UID]T
	ended   map[types.UID]T      // deleted by a write of this process that removed the last finalizer
	endings []types.UID          // in the order of their deletion
	futile  map[types.UID]string // last patch that the API server accepted and that changed nothing

	most, bytes int64 // what is remembered at most, and now; counted with a bound only
	sizes       map[types.UID]int64
}

// mostEnded bounds the objects that are remembered as deleted. The informer may show the deletion
// of an object before its writer learns of it, and then no event removes it here; one that is
// forgotten too early costs a request without effect.
const mostEnded = 4096

// NewLatest creates a Latest that remembers nothing.
func NewLatest[T metav1.Object]() *Latest[T] {
	return &Latest[T]{written: map[types.UID]T{}, ended: map[types.UID]T{}, futile: map[types.UID]string{}}
}

// AtMost has l remember objects of together so many bytes as JSON, of an API server that may answer
// with any; 0 is no bound. One that is not remembered costs a conflict. It is called before Wrote.
func (l *Latest[T]) AtMost(bytes int64) *Latest[T] {
	l.most, l.sizes = bytes, map[types.UID]int64{}
	return l
}

// fits reports whether an object may be remembered, and counts it then.
func (l *Latest[T]) fits(obj T) bool {
	if l.most == 0 {
		return true
	}
	document, err := json.Marshal(obj)
	if err != nil {
		return false
	}
	l.release(obj.GetUID())
	if l.bytes+int64(len(document)) > l.most {
		delete(l.written, obj.GetUID())
		return false
	}
	l.bytes, l.sizes[obj.GetUID()] = l.bytes+int64(len(document)), int64(len(document))
	return true
}

// release counts an object no more.
func (l *Latest[T]) release(uid types.UID) {
	l.bytes -= l.sizes[uid]
	delete(l.sizes, uid)
}

// Newest returns the newer one of cached and what this process last wrote of the same object.
// cached has to be what the informer shows now: what was written is forgotten once the informer has
// caught up.
func (l *Latest[T]) Newest(cached T) T {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ended := l.ended[cached.GetUID()]; ended {
		return last
	}
	own, known := l.written[cached.GetUID()]
	if !known {
		return cached
	}
	if objectversion.Compare(cached.GetResourceVersion(), own.GetResourceVersion()) < 0 {
		return own
	}
	delete(l.written, cached.GetUID())
	l.release(cached.GetUID())
	return cached
}

// newerThan returns the version of an object that this process has written, if it is certainly
// newer than what a decision was based on.
func (l *Latest[T]) newerThan(obj T) (version string, isNewer bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, known := l.written[obj.GetUID()]
	if !known || objectversion.Compare(obj.GetResourceVersion(), own.GetResourceVersion()) >= 0 {
		return "", false
	}
	return own.GetResourceVersion(), true
}

// remembers reports whether an object is what this process wrote last, and the informer does not
// show it yet.
func (l *Latest[T]) remembers(obj T) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, known := l.written[obj.GetUID()]
	return known && own.GetResourceVersion() == obj.GetResourceVersion()
}

// Wrote records an object that a write of this process returned. A Committer calls it itself.
func (l *Latest[T]) Wrote(obj T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 {
		l.noteEnded(obj)
		return
	}
	if own, known := l.written[obj.GetUID()]; known && objectversion.Compare(obj.GetResourceVersion(), own.GetResourceVersion()) < 0 {
		return
	}
	if l.fits(obj) {
		l.written[obj.GetUID()] = obj
	}
}

// noteEnded remembers an object as deleted; its resourceVersion need not be newer than what the
// informer shows.
func (l *Latest[T]) noteEnded(obj T) {
	if !l.fits(obj) {
		return
	}
	if len(l.endings) >= mostEnded {
		delete(l.ended, l.endings[0])
		l.release(l.endings[0])
		l.endings = l.endings[1:]
	}
	l.ended[obj.GetUID()] = obj
	l.endings = append(l.endings, obj.GetUID())
}

// Forget drops what is remembered of an object that was deleted.
func (l *Latest[T]) Forget(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.written, uid)
	delete(l.ended, uid)
	delete(l.futile, uid)
	l.release(uid)
}

// isFutile reports whether the same patch has changed nothing before: the CRD in this cluster does
// not have the field, and the API server dropped it.
func (l *Latest[T]) isFutile(uid types.UID, patch map[string]any) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, was := l.futile[uid]
	return was && last == contentOf(patch)
}

func (l *Latest[T]) noteFutile(uid types.UID, patch map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.futile[uid] = contentOf(patch)
}

// contentOf returns a patch as text, without metadata that are empty.
func contentOf(patch map[string]any) string {
	if metadata, is := patch["metadata"].(map[string]any); is && len(metadata) == 0 {
		patch = maps.Clone(patch)
		delete(patch, "metadata")
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return "" // it is not sent
	}
	return string(text)
}
