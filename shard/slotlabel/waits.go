package slotlabel

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// waits has, for each root that is turned away for what is below it, one stray for which, and that one's parent: unless one
// of the two changes or goes, the root would be turned away again. Whatever else comes and goes beside them does not matter.
type waits map[object][2]object

// isBlocked reports whether a root has strays below it, and notes one for which it waits.
func (l *Labeler) isBlocked(root object) bool {
	for {
		unlabeled, found := l.unlabeledBelow(root.key)
		l.mu.Lock()
		_, waited := l.waits[root]
		delete(l.waits, root)
		if found {
			l.waits[root] = [2]object{{unlabeled.Kind, unlabeled.Key()}, {unlabeled.Kind + 1, parentOf(unlabeled)}}
		}
		l.mu.Unlock()
		if !found {
			if waited { // another controller, which would not hear that the stray has gone: the cache shows it before the handler does
				l.doors.again(root)
			}
			return false
		}
		if l.isBelow(unlabeled, root.key) { // else it has changed before it was noted
			return true
		}
	}
}

// unlabeledBelow returns a stray whose root is a certain one, as far as the caches show it.
func (l *Labeler) unlabeledBelow(root types.NamespacedName) (unlabeled policy.Object, found bool) {
	elsewhere := map[types.UID]bool{} // parents whose root is another one, or not known
	for unlabeled := range l.cfg.Watch.in(root.Namespace) {
		if unlabeled.Parent != "" && elsewhere[unlabeled.Parent] {
			continue
		}
		elsewhere[unlabeled.Parent] = true
		if of, known := l.root(unlabeled); known && of == root {
			return unlabeled, true
		}
	}
	return policy.Object{}, false
}

// isBelow reports whether a stray still is one, unchanged, and below a root.
func (l *Labeler) isBelow(unlabeled policy.Object, root types.NamespacedName) bool {
	now, found := l.cfg.Watch.get(unlabeled.Kind, unlabeled.Key())
	if !found || now.UID != unlabeled.UID || now.ResourceVersion != unlabeled.ResourceVersion {
		return false
	}
	of, known := l.root(now)
	return known && of == root
}

func parentOf(o policy.Object) types.NamespacedName {
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
