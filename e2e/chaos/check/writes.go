package check

import (
	"fmt"
	"time"
)

// writes checks that no session changes an object after one with a later epoch has.
func (c *checker) writes(writes []Write) {
	latest, known := map[string]tenure{}, knowledge{values: map[string]map[string]string{}, removed: map[string]bool{}}
	for _, w := range writes {
		object := fmt.Sprintf("%s %s/%s", w.Object.Resource, w.Object.Namespace, w.Object.Name)
		what := fmt.Sprintf("%s of %s at %s", w.Verb, object, w.At.Format(time.RFC3339Nano))
		actor, named := c.actor(w.Caller, what, w.At)
		if !named || w.Object.Name == "" {
			continue // a create by generateName, or of a kind without one: nothing to compare with
		}
		before := latest[object]
		late := c.isLate(latest, object, actor, w.At)
		changes := w.Code/100 == 2 && known.isNew(object, w)
		switch {
		case late && changes:
			c.fault("%s by session %s, epoch %d, went through after session %s had begun with epoch %d",
				what, actor.Session, actor.Epoch, before.actor.Session, before.actor.Epoch)
		case late:
			c.report.LateWrites++
		}
	}
}

// knowledge is the effect of the fleet's successful writes, by object. Most writes have a
// resourceVersion, so that a successful one has changed something. Those of Nodes and pods have
// none: to write a value again, or to remove an object again, changes nothing.
type knowledge struct {
	values  map[string]map[string]string
	removed map[string]bool
}

// isNew records a successful write, and reports whether it can have changed anything.
func (k knowledge) isNew(object string, w Write) bool {
	switch {
	case w.Verb == "delete" || w.Verb == "create" && w.Subresource == "eviction":
		again := k.removed[object]
		k.removed[object] = true
		return !again
	case w.Verb == "patch" && w.Object.Resource == "nodes":
		return k.isNews(object, w)
	}
	return true
}

// isNews records the values of a patch of a Node, and reports whether they differ from the last
// ones. It returns false for a patch that the log does not have.
func (k knowledge) isNews(object string, w Write) bool {
	if len(w.Body) == 0 {
		return false
	}
	if k.values[object] == nil {
		k.values[object] = map[string]string{}
	}
	news := false
	for field, value := range patchedFields(w.Body) {
		if last, known := k.values[object][field]; !known || last != value {
			news = true
		}
		k.values[object][field] = value
	}
	return news
}
