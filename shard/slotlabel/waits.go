package slotlabel

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// waits has, for each root that is rejected because of objects below it, one of these unlabeled
// objects, and its parent: unless one of the two changes or is deleted, the root would be rejected
// again. Changes of other objects do not matter.
type waits map[object][2]object

// isBlocked reports whether a root has unlabeled objects below it, and records one for which it
// waits.
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
			if waited { // another controller, which would not be notified of the deletion: the cache shows it before the handler runs
				l.admission.again(root)
			}
			return false
		}
		if l.isBelow(unlabeled, root.key) { // otherwise it changed before it was recorded
			return true
		}
	}
}

// unlabeledBelow returns an unlabeled object with the given root, as far as the caches show it.
func (l *Labeler) unlabeledBelow(root types.NamespacedName) (unlabeled policy.Object, found bool) {
	elsewhere := map[types.UID]bool{} // parents whose root is another one or unknown
	for unlabeled := range l.cfg.Watch.in(root.Namespace) {
		if unlabeled.Parent != "" && elsewhere[unlabeled.Parent] {
			continue
		}
		elsewhere[unlabeled.Parent] = true
		if of, _ := l.root(unlabeled); of == root { // an unknown one is empty
			return unlabeled, true
		}
	}
	return policy.Object{}, false
}

// isBelow reports whether an unlabeled object is unchanged, and below a root.
func (l *Labeler) isBelow(unlabeled policy.Object, root types.NamespacedName) bool {
	now, _ := l.cfg.Watch.get(unlabeled.Kind, unlabeled.Key())
	if now.ResourceVersion != unlabeled.ResourceVersion {
		return false // of an object that is gone it is empty
	}
	of, _ := l.root(now)
	return of == root
}

func parentOf(o policy.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.ParentName}
}

// changed enqueues the roots that wait for an object that has changed or was deleted.
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
		l.admission.again(root)
	}
}
