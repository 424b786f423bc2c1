package commit

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Patcher is the part of a typed client that a Committer needs.
type Patcher[T any] interface {
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (T, error)
}

// Committer writes the objects of one kind. It is safe for concurrent use.
type Committer[T metav1.Object] struct {
	client func(namespace string) Patcher[T]

	mu      sync.Mutex
	written map[types.UID]T
	ended   map[types.UID]T      // gone by a write of ours that took the last finalizer
	futile  map[types.UID]string // last patch that the API server accepted and that changed nothing
}

// New makes a Committer that writes through the client of an object's namespace.
func New[T metav1.Object](client func(namespace string) Patcher[T]) *Committer[T] {
	return &Committer[T]{client: client, written: map[types.UID]T{}, ended: map[types.UID]T{}, futile: map[types.UID]string{}}
}

// Newest returns the newer one of cached and what this process last wrote of the same object. cached has to be what the
// informer shows now: what was written is forgotten once the informer has caught up.
func (c *Committer[T]) Newest(cached T) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, ended := c.ended[cached.GetUID()]; ended {
		return last
	}
	own, known := c.written[cached.GetUID()]
	if !known {
		return cached
	}
	if newer(own, cached) {
		return own
	}
	delete(c.written, cached.GetUID())
	return cached
}

// Wrote notes an object that came back from a write that did not go through Commit, such as a create.
func (c *Committer[T]) Wrote(obj T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 {
		c.ended[obj.GetUID()] = obj // its resourceVersion need not be newer than what the informer shows
		return
	}
	if own, known := c.written[obj.GetUID()]; known && newer(own, obj) {
		return
	}
	c.written[obj.GetUID()] = obj
}

// Forget drops what is remembered of an object that is gone.
func (c *Committer[T]) Forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.written, uid)
	delete(c.ended, uid)
	delete(c.futile, uid)
}

// Commit writes the difference between the object as observed and as wanted, the status last, and returns the object as
// it stands then. Neither argument is changed. An error comes with the newest object that is known.
func (c *Committer[T]) Commit(ctx context.Context, observed, wanted T) (T, error) {
	main, status, err := diff(observed, wanted)
	if err != nil {
		return observed, err
	}
	now := observed
	for _, part := range []struct {
		patch       map[string]any
		subresource []string
	}{{main, nil}, {status, []string{"status"}}} {
		if len(part.patch) == 0 {
			continue
		}
		next, err := c.patch(ctx, now, part.patch, part.subresource...)
		if err != nil {
			return now, err
		}
		now = next
	}
	return now, nil
}

func (c *Committer[T]) patch(ctx context.Context, on T, patch map[string]any, subresource ...string) (T, error) {
	content, err := json.Marshal(patch)
	if err != nil {
		return on, fmt.Errorf("encode patch of %s/%s: %w", on.GetNamespace(), on.GetName(), err)
	}
	if c.isFutile(on.GetUID(), string(content)) {
		return on, nil
	}
	metadata, _ := patch["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		patch["metadata"] = metadata
	}
	metadata["uid"] = on.GetUID()
	metadata["resourceVersion"] = on.GetResourceVersion()
	data, err := json.Marshal(patch)
	if err != nil {
		return on, fmt.Errorf("encode patch of %s/%s: %w", on.GetNamespace(), on.GetName(), err)
	}
	next, err := c.client(on.GetNamespace()).Patch(ctx, on.GetName(), types.MergePatchType, data, metav1.PatchOptions{}, subresource...)
	if err != nil {
		return on, fmt.Errorf("patch %s/%s: %w", on.GetNamespace(), on.GetName(), err)
	}
	if next.GetResourceVersion() == on.GetResourceVersion() {
		c.noteFutile(on.GetUID(), string(content))
	}
	c.Wrote(next)
	return next, nil
}

// isFutile says that the same patch has changed nothing before: the CRD in this cluster does not have the field, and the
// API server dropped it.
func (c *Committer[T]) isFutile(uid types.UID, content string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.futile[uid] == content
}

func (c *Committer[T]) noteFutile(uid types.UID, content string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.futile[uid] = content
}

// diff returns the merge patch from observed to wanted, cut into the object's and its status'.
func diff(observed, wanted any) (main, status map[string]any, err error) {
	before, err := json.Marshal(observed)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the object as observed: %w", err)
	}
	after, err := json.Marshal(wanted)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the object as wanted: %w", err)
	}
	patch, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		return nil, nil, fmt.Errorf("compare the object as observed and as wanted: %w", err)
	}
	main = map[string]any{}
	if err := json.Unmarshal(patch, &main); err != nil {
		return nil, nil, fmt.Errorf("read the patch: %w", err)
	}
	if s, changed := main["status"]; changed {
		status = map[string]any{"status": s}
		delete(main, "status")
	}
	return main, status, nil
}

// newer says whether a is newer than b. Versions that cannot be compared, which a Kubernetes API server does not make,
// count as not newer, so that the informer wins.
func newer(a, b metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order > 0
}
