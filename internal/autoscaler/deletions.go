package autoscaler

import (
	"context"
	"slices"
	"sync"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/groups"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
)

// groupKey is a group of a client.
type groupKey struct {
	who identity
	id  string
}

// deletion is a call that deletes Nodes.
type deletion struct {
	nodes   []groups.Node
	done    bool
	verdict error // of done
}

// deletions are the calls of each group that wait for their turn. A client deletes the Nodes of a
// group by a call each, many at a time: the call whose turn it is writes the effects of all that
// wait. It is safe for concurrent use.
type deletions struct {
	turns pacing.Turns[groupKey]

	mu      sync.Mutex
	waiting map[groupKey][]*deletion
}

// add adds a call that waits.
func (a *deletions) add(key groupKey, one *deletion) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting = map[groupKey][]*deletion{}
	}
	a.waiting[key] = append(a.waiting[key], one)
}

// drop removes a call that does not wait any more.
func (a *deletions) drop(key groupKey, one *deletion) {
	a.mu.Lock()
	defer a.mu.Unlock()
	rest := slices.DeleteFunc(a.waiting[key], func(of *deletion) bool { return of == one })
	if a.waiting[key] = rest; len(rest) == 0 {
		delete(a.waiting, key)
	}
}

// take returns the calls of a group that wait, and removes them.
func (a *deletions) take(key groupKey) []*deletion {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.waiting[key]
	delete(a.waiting, key)
	return all
}

// deleteNodes deletes Nodes, with those of other calls for the group that wait. Errors: those of
// change.
func (w *writer) deleteNodes(ctx context.Context, who identity, id string, nodes []groups.Node) error {
	key, one := groupKey{who, id}, &deletion{nodes: nodes}
	w.deletions.add(key, one)
	unlock, err := w.deletions.turns.Lock(ctx, key)
	if err != nil {
		w.deletions.drop(key, one)
		return err
	}
	defer unlock()
	if !one.done { // by the call before
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxCall) // the end of one call must not end the others
		defer cancel()
		w.deleteAll(ctx, key, w.deletions.take(key))
	}
	return one.verdict
}

// deleteAll finishes calls, all for one group, with one write. A call that is refused has no effect
// on the others.
func (w *writer) deleteAll(ctx context.Context, key groupKey, calls []*deletion) {
	err := w.change(ctx, key.who, key.id, func(live groups.Live) (desired *v1alpha1.MachineDeployment, err error) {
		var all []groups.Target
		count := make([]int, len(calls))
		for i, one := range calls {
			var targets []groups.Target
			targets, one.verdict = w.targets(ctx, key.who, key.id, live.Deployment.UID, one.nodes)
			all, count[i] = append(all, targets...), len(targets)
		}
		if err := w.readMachines(ctx, key.who.namespace, all); err != nil {
			return nil, err
		}
		for i, one := range calls {
			targets := all[:count[i]]
			all = all[count[i]:]
			if one.verdict != nil {
				continue
			}
			var next *v1alpha1.MachineDeployment
			if next, one.verdict = groups.Delete(live, targets); next != nil {
				live.Deployment, desired = next, next
			}
		}
		return desired, nil
	})
	for _, one := range calls {
		if one.done = true; one.verdict == nil {
			one.verdict = err
		}
	}
}
