package replica

import (
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// The clusters, as they are named in what is reported about them.
const (
	controlName = "control"
	targetName  = "target"
)

// watched records whether the objects of this replica's slots are delivered.
type watched struct {
	clock clock.PassiveClock
	// after is for how long a kind may not be delivered before that is reported.
	after time.Duration
	kinds []watchedKind
	// lists record the health of lists of the clusters.
	lists []watchedLists
}

// watchedLists are the lists of one of the clusters.
type watchedLists struct {
	cluster string
	health  *apianswers.ListHealth
}

// watchedKind is a kind of objects in one of the clusters.
type watchedKind struct {
	name, cluster string
	health        *objectcache.Health
}

// source returns a source of a kind that is followed.
func (w *watched) source(name, cluster string, from objectcache.Source) objectcache.Source {
	from.Health = objectcache.NewHealth(w.clock)
	w.kinds = append(w.kinds, watchedKind{name: name, cluster: cluster, health: from.Health})
	return from
}

// control returns a source of a kind of the control cluster that is followed.
func (w *watched) control(name string, from objectcache.Source) objectcache.Source {
	return w.source(name, controlName, from)
}

// Broken returns what has not been delivered for that long, by target cluster. Without the objects
// of the control cluster no target can be served.
func (w *watched) Broken() map[string]string {
	for _, cluster := range []string{controlName, targetName} {
		if what := w.brokenOf(cluster); what != "" {
			return map[string]string{protocol.DefaultTarget: what}
		}
	}
	return nil
}

// brokenOf returns what a cluster has not delivered for that long; "" if there is nothing.
func (w *watched) brokenOf(cluster string) string {
	for _, kind := range w.kinds {
		if since, _, broken := kind.health.Broken(); kind.cluster == cluster && broken && w.clock.Since(since) >= kind.health.Tolerance(w.after) {
			return "the " + cluster + " cluster does not deliver " + kind.name
		}
	}
	for _, lists := range w.lists {
		if resource, broken := lists.health.Broken(w.after); lists.cluster == cluster && broken {
			return "the " + cluster + " cluster does not answer lists of " + resource
		}
	}
	return ""
}
