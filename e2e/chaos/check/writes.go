package check

import (
	"fmt"
	"time"
)

// writes checks that nobody changes an object that a later epoch has begun to work on.
func (c *checker) writes(writes []Write) {
	latest, known := map[string]tenure{}, knowledge{said: map[string]map[string]string{}, removed: map[string]bool{}}
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

// knowledge is what the fleet has had its way with, by object. Most is written with a resourceVersion, so that what goes
// through has changed something. Nodes and pods are not: to say of one what was said before, or to remove it once more,
// changes nothing.
type knowledge struct {
	said    map[string]map[string]string
	removed map[string]bool
}

// isNew notes a write that went through, and says whether it can have changed anything.
func (k knowledge) isNew(object string, w Write) bool {
	switch {
	case w.Verb == "delete" || w.Verb == "create" && w.Subresource == "eviction":
		again := k.removed[object]
		k.removed[object] = true
		return !again
	case w.Verb == "patch" && w.Object.Resource == "nodes":
		return k.isNews(object, w)
	case w.Verb == "patch" && w.Object.Resource == "secrets":
		return false // a bootstrap token, which is read by a patch, or lives for an hour from that patch
	}
	return true
}

// isNews notes what a patch of a Node says, and tells whether that is other than what was said last. Of a patch that the
// log does not have nothing is known.
func (k knowledge) isNews(object string, w Write) bool {
	if len(w.Body) == 0 {
		return false
	}
	if k.said[object] == nil {
		k.said[object] = map[string]string{}
	}
	news := false
	for field, value := range sayings(w.Body) {
		if last, known := k.said[object][field]; !known || last != value {
			news = true
		}
		k.said[object][field] = value
	}
	return news
}
