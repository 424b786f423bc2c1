package patch

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectversion"
)

// mostUnseen and mostVersion bound what an API server can have remembered of one object: versions,
// and bytes of each. A pass has a few writes, and versions are numbers.
const mostUnseen, mostVersion = 16, 64

// Versions are those of objects that one writer has written and its informer has not shown yet.
// When it shows one, the writer knows it already. It is safe for concurrent use.
type Versions struct {
	mu     sync.Mutex
	unseen map[types.UID][]string
}

// NewVersions returns an empty Versions.
func NewVersions() *Versions { return &Versions{unseen: map[types.UID][]string{}} }

// Wrote records the version that a write of an object has returned. It does not if nothing was
// changed, or another object was returned, or if the write has ended the object: no informer shows
// such a version.
func (v *Versions) Wrote(sent, returned metav1.Object) {
	version, uid := returned.GetResourceVersion(), returned.GetUID()
	if version == sent.GetResourceVersion() || uid != sent.GetUID() || len(version) > mostVersion ||
		returned.GetDeletionTimestamp() != nil && len(returned.GetFinalizers()) == 0 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	unseen := v.unseen[uid]
	v.unseen[uid] = append(unseen[max(len(unseen)-mostUnseen+1, 0):], version)
}

// Shown reports whether a version that the informer shows was written here. It is forgotten, and so
// are those that the informer has passed over.
func (v *Versions) Shown(obj metav1.Object) (own bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	shown := obj.GetResourceVersion()
	left := slices.DeleteFunc(v.unseen[obj.GetUID()], func(version string) bool {
		own = own || version == shown
		return objectversion.Compare(version, shown) <= 0
	})
	if v.unseen[obj.GetUID()] = left; len(left) == 0 {
		delete(v.unseen, obj.GetUID())
	}
	return own
}

// Forget drops what is remembered of an object that was deleted.
func (v *Versions) Forget(uid types.UID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.unseen, uid)
}
