package slotlabel

import (
	"maps"
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// suspect records that an object seems to be mislabeled.
func (l *Labeler) suspect(key Key, o object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.suspects[key] == nil {
		l.suspects[key] = map[object]uint64{}
	}
	l.suspicions++
	l.suspects[key][o] = l.suspicions
}

// lastSuspicion returns the number of the last suspicion.
func (l *Labeler) lastSuspicion() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.suspicions
}

// concerns reports whether the caches show anything that the holder of the slot may have to label.
// If not, the suspicions up to the last one are removed.
func (l *Labeler) concerns(key Key, last uint64) bool {
	l.mu.Lock()
	suspects := slices.Collect(maps.Keys(l.suspects[key]))
	l.mu.Unlock()
	if slices.ContainsFunc(suspects, l.seemsMislabeled) {
		return true
	}
	l.clear(key, last)
	for unlabeled := range l.cfg.Watch.in(key.Namespace) {
		if slices.Contains(l.keys(unlabeled), key) {
			return true
		}
	}
	return false
}

// seemsMislabeled reports whether an object is cached and its label is not known to fit.
func (l *Labeler) seemsMislabeled(o object) bool {
	meta, known := l.cfg.Known(o.kind, o.key)
	if !known {
		return false
	}
	found := policy.Of(o.kind, meta)
	root, known := l.root(found)
	return !known || policy.Value(l.cfg.Slots.Of(root.Namespace, root.Name)) != found.Slot
}

// clear removes the suspects of a key that no later suspicion than the last one names: what has
// refuted that one may be older than a later one.
func (l *Labeler) clear(key Key, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.suspects[key], func(_ object, number uint64) bool { return number <= last })
	if len(l.suspects[key]) == 0 {
		delete(l.suspects, key)
	}
}
