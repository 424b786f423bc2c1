package autoscaler

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	began   time.Time
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
	a.keep(key, slices.DeleteFunc(a.waiting[key], func(of *deletion) bool { return of == one }))
}

// take removes the calls of a group that wait the longest, and returns them: together they name as
// many Nodes as one call may. The others stay.
func (a *deletions) take(key groupKey) []*deletion {
	a.mu.Lock()
	defer a.mu.Unlock()
	all, count, nodes := a.waiting[key], 0, 0
	for _, one := range all {
		if nodes += len(one.nodes); count > 0 && nodes > groups.MostNodes {
			break
		}
		count++
	}
	a.keep(key, slices.Clone(all[count:]))
	return all[:count]
}

func (a *deletions) keep(key groupKey, rest []*deletion) {
	if a.waiting[key] = rest; len(rest) == 0 {
		delete(a.waiting, key)
	}
}

// deleteNodes deletes Nodes, with those of other calls for the group that wait. Errors: those of
// change.
func (w *writer) deleteNodes(ctx context.Context, who identity, id string, nodes []groups.Node) error {
	if err := checkGroup(who, id); err != nil {
		return err
	}
	if len(nodes) > groups.MostNodes { // before it waits: a batch is bounded
		return status.Errorf(codes.InvalidArgument, "expected at most %d Nodes in a call, got %d; send several calls",
			groups.MostNodes, len(nodes))
	}
	key, one := groupKey{who, id}, &deletion{nodes: nodes, began: w.reader.clock.Now()}
	w.deletions.add(key, one)
	unlock, err := w.deletions.turns.Lock(ctx, key)
	if err != nil {
		w.deletions.drop(key, one)
		return err
	}
	defer unlock()
	for !one.done { // by the call before
		if ctx.Err() != nil {
			w.deletions.drop(key, one)
			return ctx.Err()
		}
		batch := w.deletions.take(key)
		if len(batch) == 0 {
			return status.Errorf(codes.Internal, "expected the deletion for group %.80s in its queue, got none; report this defect", id)
		}
		w.deleteAll(ctx, key, batch)
	}
	return one.verdict
}

// deleteAll finishes calls, all for one group, with one write. A call that is refused, or whose
// Machines cannot be read, has no effect on the others.
func (w *writer) deleteAll(ctx context.Context, key groupKey, calls []*deletion) {
	defer failUnfinished(calls) // after a panic: none must be answered as if it had its effect
	// The end of one call must not end the others. Those that wait have begun after the first one.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxCall-w.reader.clock.Since(calls[0].began))
	defer cancel()
	find := finder{writer: w, who: key.who, id: key.id}
	err := w.change(ctx, key.who, key.id, func(live groups.Live) (desired *v1alpha1.MachineDeployment, err error) {
		targets := make([][]groups.Target, len(calls))
		for i, one := range calls {
			targets[i], one.verdict = find.targets(ctx, live.Deployment.UID, one.nodes)
		}
		read := w.readMachines(ctx, key.who.namespace, slices.Concat(targets...))
		for i, one := range calls {
			if one.verdict == nil {
				one.verdict = read.update(targets[i])
			}
			if one.verdict != nil {
				continue
			}
			var next *v1alpha1.MachineDeployment
			if next, one.verdict = groups.Delete(live, targets[i]); next != nil {
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

func failUnfinished(calls []*deletion) {
	for _, one := range calls {
		if !one.done {
			one.done, one.verdict = true, status.New(codes.Internal, "the fleet has a defect in a deletion; see its log").Err()
		}
	}
}

// finder finds the Machines of Nodes for the calls of a batch, which read the namespace once, and
// once more where what was known does not show all of them.
type finder struct {
	*writer

	who   identity
	id    string
	views [2]*view // by the index of viewAges
}

// viewAges are how old the views of a finder are at most.
var viewAges = [2]time.Duration{maxAge, refreshAge}

type view struct {
	namespace *groups.Namespace
	err       error
}

func (f *finder) view(ctx context.Context, i int) (*groups.Namespace, error) {
	if f.views[i] == nil {
		namespace, err := f.reader.namespace(ctx, f.who.namespace, viewAges[i])
		f.views[i] = &view{namespace, err}
	}
	return f.views[i].namespace, f.views[i].err
}

// targets finds the Machines of Nodes in what is known of the namespace, and, where that does not
// show all of them, in what is read now: one that is missing may be gone, or too new to be known.
func (f *finder) targets(ctx context.Context, deployment types.UID, nodes []groups.Node) (targets []groups.Target, err error) {
	for i := range viewAges {
		var namespace *groups.Namespace
		if namespace, err = f.view(ctx, i); err != nil {
			return nil, err
		}
		targets, err = targetsIn(namespace, f.who, f.id, deployment, nodes)
		if err == nil && !slices.ContainsFunc(targets, func(t groups.Target) bool { return t.Gone }) {
			break
		}
	}
	return targets, err
}

func targetsIn(n *groups.Namespace, who identity, id string, deployment types.UID, nodes []groups.Node) ([]groups.Target, error) {
	_, of, err := n.Members(id)
	if err != nil {
		return nil, err
	}
	if of != deployment {
		return nil, replaced(who, id)
	}
	return n.Targets(id, nodes)
}

// machineReads contains the results of reads of Machines, by name.
type machineReads map[string]*machineRead

type machineRead struct {
	is   groups.Machine
	gone bool
	err  error
}

// readMachines reads the Machines of targets that are not gone, each once.
func (w *writer) readMachines(ctx context.Context, namespace string, targets []groups.Target) machineReads {
	all := machineReads{}
	var running sync.WaitGroup
	free := make(chan struct{}, readsAtOnce)
	for _, t := range targets {
		if t.Gone || all[t.Machine.Name] != nil {
			continue
		}
		read := &machineRead{}
		all[t.Machine.Name] = read
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			*read = w.readMachine(ctx, namespace, t.Machine.Name)
		})
	}
	running.Wait()
	return all
}

func (w *writer) readMachine(ctx context.Context, namespace, name string) machineRead {
	m, err := w.machines.Machines(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return machineRead{gone: true}
	}
	if err != nil {
		return machineRead{err: err}
	}
	return machineRead{is: groups.MachineOf(m, w.wall())}
}

// update replaces the Machines of targets by those that were read. A Machine that is another one,
// or that another MachineSet has now, is gone. Errors: that of a Machine which could not be read.
func (r machineReads) update(targets []groups.Target) error {
	for i := range targets {
		t := &targets[i]
		if t.Gone {
			continue
		}
		read := r[t.Machine.Name]
		switch {
		case read.err != nil:
			return read.err
		case read.gone:
			t.Gone = true
		default:
			t.Gone = read.is.UID != t.Machine.UID || read.is.Set != t.Machine.Set
			t.Machine = read.is
		}
	}
	return nil
}
