package patch

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectversion"
)

// Versions are those of objects that one writer has written and its informer has not shown yet.
// When it shows one, the writer knows it already. It is safe for concurrent use.
type Versions struct {
	mu     sync.Mutex
	unseen map[types.UID][]string
}

// NewVersions returns an empty Versions.
func NewVersions() *Versions { return &Versions{unseen: map[types.UID][]string{}} }

// Wrote records the version that a write has returned, unless the write has ended the object: no
// informer shows that version.
func (v *Versions) Wrote(obj metav1.Object) {
	if obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unseen[obj.GetUID()] = append(v.unseen[obj.GetUID()], obj.GetResourceVersion())
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
