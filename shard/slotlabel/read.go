package slotlabel

import (
	"context"
	"errors"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// readsAtOnce is how many namespaces are read at a time: each has a page of every kind in memory,
// and the metadata of its objects.
const readsAtOnce = 8

// reader reads the objects of namespaces from the API server. Concurrent callers for one namespace
// share a read, so that a namespace with objects of all slots is not read for each of them; but no
// caller gets a read that began before its call.
type reader struct {
	metadata metadata.Interface
	machines machineclient.MachineV1alpha1Interface // for selectors, which are no metadata
	// plant computes from the objects what all callers share.
	plant func(objects []policy.Object) *snapshot
	turns chan struct{} // its capacity limits the namespaces that are read at a time

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
	offers policy.Offers
}

// read returns the MachineDeployments, MachineSets and Machines of a namespace as they were after
// the call.
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
	select { // as well
	case r.turns <- struct{}{}:
		defer func() { <-r.turns }()
	case <-ctx.Done():
	}
	r.mu.Lock()
	mine.begun = true
	r.mu.Unlock()
	mine.found, mine.err = r.observe(ctx, namespace)
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

// observe reads a namespace. Parents are read whole for their selectors, a page at a time, and only
// if there are orphans for them.
func (r *reader) observe(ctx context.Context, namespace string) (*snapshot, error) {
	objects, err := r.list(ctx, namespace)
	if err != nil {
		return nil, err
	}
	found := r.plant(objects)
	if found.offers.Needs(policy.Set) {
		err = decode.EachPage(ctx, "MachineSets for adoption", r.machines.MachineSets(namespace).List, func(page *v1alpha1.MachineSetList) {
			for i := range page.Items {
				found.offers.To(policy.Set, &page.Items[i], page.Items[i].Spec.Selector)
			}
		})
	}
	if err == nil && found.offers.Needs(policy.Deployment) {
		err = decode.EachPage(ctx, "MachineDeployments for adoption", r.machines.MachineDeployments(namespace).List,
			func(page *v1alpha1.MachineDeploymentList) {
				for i := range page.Items {
					found.offers.To(policy.Deployment, &page.Items[i], page.Items[i].Spec.Selector)
				}
			})
	}
	return found, err
}

// list lists the three kinds at the same time: each list waits until the API server's cache is up
// to date. A parent that is missing then may have been created in between, so all is listed once
// more, children before parents.
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
	list := r.metadata.Resource(resource(kind)).Namespace(namespace).List
	return objects,
		decode.EachObject(ctx, kind.Resource()+" of namespace "+namespace, metav1.ListOptions{}, list, func(found *metav1.PartialObjectMetadata) {
			objects = append(objects, policy.Of(kind, found))
		})
}
