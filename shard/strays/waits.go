package strays

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/label"
)

// waits has, for each root that is turned away for what is below it, one stray for which, and that one's parent: unless one
// of the two changes or goes, the root would be turned away again. Whatever else comes and goes beside them does not matter.
type waits map[object][2]object

// isBlocked reports whether a root has strays below it, and notes one for which it waits.
func (l *Labeler) isBlocked(root object) bool {
	for {
		stray, found := l.strayBelow(root.key)
		l.mu.Lock()
		_, waited := l.waits[root]
		delete(l.waits, root)
		if found {
			l.waits[root] = [2]object{{stray.Kind, stray.Key()}, {stray.Kind + 1, parentOf(stray)}}
		}
		l.mu.Unlock()
		if !found {
			if waited { // another controller, which would not hear that the stray has gone: the cache shows it before the handler does
				l.doors.again(root)
			}
			return false
		}
		if l.isBelow(stray, root.key) { // else it has changed before it was noted
			return true
		}
	}
}

// strayBelow returns a stray whose root is a certain one, as far as the caches show it.
func (l *Labeler) strayBelow(root types.NamespacedName) (stray label.Object, found bool) {
	elsewhere := map[types.UID]bool{} // parents whose root is another one, or not known
	for stray := range l.cfg.Watch.in(root.Namespace) {
		if stray.Parent != "" && elsewhere[stray.Parent] {
			continue
		}
		elsewhere[stray.Parent] = true
		if of, known := l.root(stray); known && of == root {
			return stray, true
		}
	}
	return label.Object{}, false
}

// isBelow reports whether a stray still is one, unchanged, and below a root.
func (l *Labeler) isBelow(stray label.Object, root types.NamespacedName) bool {
	now, found := l.cfg.Watch.get(stray.Kind, stray.Key())
	if !found || now.UID != stray.UID || now.ResourceVersion != stray.ResourceVersion {
		return false
	}
	of, known := l.root(now)
	return known && of == root
}

func parentOf(o label.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.ParentName}
}

// changed has the roots looked at again that wait for an object which has changed or is gone.
func (l *Labeler) changed(o object) {
	var again []object
	l.mu.Lock()
	for root, on := range l.waits {
		if on[0] == o || on[1] == o {
			again = append(again, root)
			delete(l.waits, root)
		}
	}
	l.mu.Unlock()
	for _, root := range again {
		l.doors.again(root)
	}
}
