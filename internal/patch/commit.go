package patch

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectversion"
)

// Patcher is the part of a typed client that a Committer needs.
type Patcher[T any] interface {
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (T, error)
}

// Committer writes the objects of one kind. It is safe for concurrent use.
type Committer[T metav1.Object] struct {
	*Latest[T]
	versions *Versions // that this Committer has written
	client   func(namespace string) Patcher[T]
}

// New creates a Committer that writes through the client of an object's namespace.
func New[T metav1.Object](client func(namespace string) Patcher[T]) *Committer[T] {
	return NewSharing(NewLatest[T](), client)
}

// NewSharing is New for several controllers that write objects of the same kind: each knows what
// the others have written, so that they do not conflict before the informer shows it.
func NewSharing[T metav1.Object](written *Latest[T], client func(namespace string) Patcher[T]) *Committer[T] {
	return &Committer[T]{Latest: written, versions: NewVersions(), client: client}
}

// Commit writes the difference between the object as observed and as wanted, the status last, and
// returns the object as it then is. Neither argument is changed. An error is returned with the
// newest known object.
func (c *Committer[T]) Commit(ctx context.Context, observed, desired T) (T, error) {
	main, status, err := diff(observed, desired)
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
	if c.isFutile(on.GetUID(), patch) {
		return on, nil
	}
	unlock, err := c.turns.Lock(ctx, on.GetUID())
	if err != nil {
		return on, fmt.Errorf("patch %s/%s: wait for another write of this process: %w", on.GetNamespace(), on.GetName(), err)
	}
	defer unlock()
	if written, isOld := c.newerThan(on); isOld { // the API server would reject it
		return on, fmt.Errorf("patch %s/%s: %w", on.GetNamespace(), on.GetName(), apierrors.NewConflict(schema.GroupResource{}, on.GetName(),
			fmt.Errorf("the change was decided on version %s, and this process has written version %s", on.GetResourceVersion(), written)))
	}
	metadata, _ := patch["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		patch["metadata"] = metadata
	}
	if len(subresource) == 0 && isGenerated(on) {
		metadata["managedFields"] = noManagers
	}
	metadata["uid"] = on.GetUID()
	metadata["resourceVersion"] = on.GetResourceVersion()
	data, err := json.Marshal(patch)
	if err != nil {
		return on, fmt.Errorf("encode patch of %s/%s: %w", on.GetNamespace(), on.GetName(), err)
	}
	next, err := c.client(on.GetNamespace()).Patch(ctx, on.GetName(), types.MergePatchType, data, metav1.PatchOptions{}, subresource...)
	if err != nil {
		if apierrors.IsConflict(err) && c.remembers(on) {
			c.forgetIfRestored(ctx, on)
		}
		return on, fmt.Errorf("patch %s/%s: %w", on.GetNamespace(), on.GetName(), err)
	}
	if next.GetResourceVersion() == on.GetResourceVersion() {
		delete(metadata, "uid")
		delete(metadata, "resourceVersion")
		delete(metadata, "managedFields")
		c.noteFutile(on.GetUID(), patch)
	}
	if next.GetUID() == on.GetUID() { // nothing would end what is remembered of another object
		c.Wrote(next)
		c.versions.Wrote(on, next)
	}
	return next, nil
}

// forgetIfRestored forgets what this process wrote last of an object, if the API server has an
// older version: etcd was restored, and the informer would never catch up. A patch without a
// change reads the object. If it fails, the next conflict repeats it.
func (c *Committer[T]) forgetIfRestored(ctx context.Context, written T) {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": written.GetUID()}})
	if err != nil {
		return // never: a UID can be encoded
	}
	live, err := c.client(written.GetNamespace()).Patch(ctx, written.GetName(), types.MergePatchType, data, metav1.PatchOptions{})
	if err == nil && live.GetUID() == written.GetUID() &&
		objectversion.Compare(live.GetResourceVersion(), written.GetResourceVersion()) < 0 {
		c.Forget(written.GetUID())
	}
}

// noManagers removes the record of which client has written which field: the API server keeps none
// of an object whose record was removed, until a client applies it. To keep it takes the API server
// a sixth of its time for a machine that is created or replaced.
var noManagers = []any{map[string]any{}}

// isGenerated reports whether an object belongs to another one of the fleet's: a Machine of a
// MachineSet, or a MachineSet of a MachineDeployment, created or adopted by it.
func isGenerated(obj metav1.Object) bool {
	owner := metav1.GetControllerOfNoCopy(obj)
	return owner != nil && owner.APIVersion == v1alpha1.SchemeGroupVersion.String()
}

// IsOwn reports whether what the informer shows now of an object is a version that this Committer
// wrote. Each patch is refused for any other version than the one that it was decided on, so that
// nothing is new to the writer.
func (c *Committer[T]) IsOwn(shown T) bool {
	if !c.versions.Shown(shown) {
		return false
	}
	c.Newest(shown) // forgets the write that the informer has caught up with
	return true
}

// Forget drops what is remembered of an object that was deleted.
func (c *Committer[T]) Forget(uid types.UID) {
	c.Latest.Forget(uid)
	c.versions.Forget(uid)
}

// diff returns the merge patch from observed to wanted, split into the object's and its status'.
func diff(observed, desired any) (main, status map[string]any, err error) {
	observed, desired = differences(observed, desired)
	before, err := runtime.DefaultUnstructuredConverter.ToUnstructured(observed)
	if err != nil {
		return nil, nil, fmt.Errorf("convert the object as observed: %w", err)
	}
	after, err := runtime.DefaultUnstructuredConverter.ToUnstructured(desired)
	if err != nil {
		return nil, nil, fmt.Errorf("convert the object as wanted: %w", err)
	}
	main = mergePatch(before, after)
	if s, changed := main["status"]; changed {
		status = map[string]any{"status": s}
		delete(main, "status")
	}
	return main, status, nil
}

// differences returns copies of two objects, pointers to structs of the same type, without the
// fields that are the same in both: most are, and to encode them costs more than to compare them.
func differences(one, other any) (any, any) {
	a, b := reflect.New(reflect.TypeOf(one).Elem()), reflect.New(reflect.TypeOf(other).Elem())
	a.Elem().Set(reflect.ValueOf(one).Elem())
	b.Elem().Set(reflect.ValueOf(other).Elem())
	clearEqual(a.Elem(), b.Elem())
	return a.Interface(), b.Interface()
}

// clearEqual sets the fields of two structs to zero that are the same in both. Structs that are
// left out when they are zero are cleared as a whole, since one of two that differ could become
// zero.
func clearEqual(a, b reflect.Value) {
	for i := range a.NumField() {
		one, other := a.Field(i), b.Field(i)
		_, encodesItself := reflect.TypeAssert[json.Marshaler](one.Addr())
		isWhole := encodesItself || strings.Contains(a.Type().Field(i).Tag.Get("json"), "omitzero")
		switch {
		case reflect.DeepEqual(one.Addr().Interface(), other.Addr().Interface()): // of pointers: a field itself would be copied
			one.SetZero()
			other.SetZero()
		case one.Kind() == reflect.Struct && !isWhole:
			clearEqual(one, other)
		}
	}
}

// mergePatch returns what makes after of before, by RFC 7386: fields that are removed are null, and
// lists are replaced as a whole.
func mergePatch(before, after map[string]any) map[string]any {
	patch := map[string]any{}
	for key, to := range after {
		from, was := before[key]
		if !was {
			patch[key] = to
			continue
		}
		fromFields, fromIsObject := from.(map[string]any)
		toFields, toIsObject := to.(map[string]any)
		if fromIsObject && toIsObject {
			if changes := mergePatch(fromFields, toFields); len(changes) > 0 {
				patch[key] = changes
			}
		} else if !reflect.DeepEqual(from, to) {
			patch[key] = to
		}
	}
	for key := range before {
		if _, is := after[key]; !is {
			patch[key] = nil
		}
	}
	return patch
}
