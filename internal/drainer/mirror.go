package drainer

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// mirror returns what keeps objects as a watch reports them, without the fields that trim removes.
// synced is called after the first list.
func mirror[T metav1.Object](all *objectcache.Objects[T], trim func(T) T, synced func()) *objectcache.Mirror[T] {
	store := objectcache.StoreOf(all)
	return &objectcache.Mirror[T]{
		Store: store, Mine: store.Each, Listed: sync.OnceFunc(synced),
		Keep: func(obj T) (kept T, is bool) { return trim(obj), true },
	}
}
