package slotlabel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// page is the number of objects in one page of a list.
const page = 1000

// reader reads the objects of namespaces from the API server. Concurrent callers for one namespace share a read, so that a
// namespace with objects of all slots is not read for each of them; but no caller gets a read that began before its call.
type reader struct {
	metadata metadata.Interface
	// plant computes from the objects what all callers share.
	plant func(objects []policy.Object) *snapshot

	mu     sync.Mutex
	rounds map[string]*round // the last round of each namespace; it may not have begun
}

// round is one read of a namespace.
type round struct {
	begun bool // guarded by reader.mu
	done  chan struct{}
	found *snapshot
	err   error
}

// snapshot is a namespace as one read returned it. It is immutable.
type snapshot struct {
	forest policy.Forest
	trees  []policy.Tree // trees that do not fit
}

// read returns the MachineDeployments, MachineSets and Machines of a namespace as they were after the call.
func (r *reader) read(ctx context.Context, namespace string) (*snapshot, error) {
	r.mu.Lock()
	last := r.rounds[namespace]
	if last != nil && !last.begun {
		r.mu.Unlock()
		return last.wait(ctx)
	}
	mine := &round{done: make(chan struct{})}
	r.rounds[namespace] = mine
	r.mu.Unlock()
	if last != nil { // meanwhile other callers may join
		_, _ = last.wait(ctx)
	}
	r.mu.Lock()
	mine.begun = true
	r.mu.Unlock()
	objects, err := r.list(ctx, namespace)
	if mine.err = err; err == nil {
		mine.found = r.plant(objects)
	}
	close(mine.done)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rounds[namespace] == mine {
		delete(r.rounds, namespace)
	}
	return mine.found, mine.err
}

func (r *round) wait(ctx context.Context) (*snapshot, error) {
	select {
	case <-r.done:
		return r.found, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// list lists the three kinds at the same time: each list waits until the API server's cache is up to date. A parent that is
// missing then may have been created in between, so all is listed once more, children before parents.
func (r *reader) list(ctx context.Context, namespace string) ([]policy.Object, error) {
	kinds := []policy.Kind{policy.Machine, policy.Set, policy.Deployment}
	found, errs := make([][]policy.Object, len(kinds)), make([]error, len(kinds))
	var running sync.WaitGroup
	for i, kind := range kinds {
		running.Go(func() { found[i], errs[i] = r.listKind(ctx, namespace, kind) })
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil || policy.Plant(slices.Concat(found...), nil).IsWhole() {
		return slices.Concat(found...), err
	}
	for i, kind := range kinds {
		var err error
		if found[i], err = r.listKind(ctx, namespace, kind); err != nil {
			return nil, err
		}
	}
	return slices.Concat(found...), nil
}

func (r *reader) listKind(ctx context.Context, namespace string, kind policy.Kind) (objects []policy.Object, err error) {
	options := metav1.ListOptions{Limit: page}
	for {
		list, err := r.metadata.Resource(resource(kind)).Namespace(namespace).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list the %s of namespace %s: %w", kind.Resource(), namespace, err)
		}
		for i := range list.Items {
			objects = append(objects, policy.Of(kind, &list.Items[i]))
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return objects, nil
		}
	}
}
