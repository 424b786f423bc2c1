package configcache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	fleetclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
)

// Writer writes MachineConfigs. Create one with NewWriter. It is safe for concurrent use.
type Writer struct {
	client  fleetclient.MachineConfigsGetter
	configs *patch.Committer[*v1alpha1.MachineConfig]
}

// NewWriter returns a Writer that remembers so many bytes of what it has written at most; 0 is no
// bound.
func NewWriter(client fleetclient.MachineConfigsGetter, most int64) *Writer {
	return &Writer{client: client, configs: patch.NewSharing(patch.NewLatest[*v1alpha1.MachineConfig]().AtMost(most),
		func(string) patch.Patcher[*v1alpha1.MachineConfig] { return client.MachineConfigs() })}
}

// Create creates a MachineConfig. Errors: those of the request; one that exists already, which the
// cache does not show yet, is a conflict.
func (w *Writer) Create(ctx context.Context, want *v1alpha1.MachineConfig) error {
	created, err := w.client.MachineConfigs().Create(ctx, want, metav1.CreateOptions{})
	if err != nil {
		if apierrors.IsAlreadyExists(err) {
			err = apierrors.NewConflict(v1alpha1.Resource("machineconfigs"), want.Name, errors.New("it exists, and was not cached yet"))
		}
		return fmt.Errorf("create MachineConfig %s: %w", want.Name, err)
	}
	if created.Name == want.Name {
		w.configs.Wrote(created)
	}
	klog.FromContext(ctx).Info("Created generated MachineConfig", "machineConfig", want.Name)
	return nil
}

// Keep writes what differs of a MachineConfig that exists. One that is being deleted is left alone:
// it is created again when it is gone.
func (w *Writer) Keep(ctx context.Context, cached, want *v1alpha1.MachineConfig) error {
	existing := w.configs.Newest(cached)
	if existing.DeletionTimestamp != nil || IsAs(existing, want) {
		return nil
	}
	_, err := w.configs.Commit(ctx, existing, merged(existing, want))
	switch {
	case apierrors.IsNotFound(err):
		w.configs.Forget(existing.UID)
		return nil // its deletion is an event
	case err != nil:
		return fmt.Errorf("write MachineConfig %s: %w", want.Name, err)
	}
	klog.FromContext(ctx).Info("Wrote generated MachineConfig", "machineConfig", want.Name)
	return nil
}

// Delete deletes a generated MachineConfig that is not wanted any more.
func (w *Writer) Delete(ctx context.Context, c *v1alpha1.MachineConfig) error {
	if c.DeletionTimestamp != nil {
		return nil
	}
	err := w.client.MachineConfigs().Delete(ctx, c.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(c.UID))})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("delete MachineConfig %s: %w", c.Name, err)
	}
	w.configs.Forget(c.UID)
	klog.FromContext(ctx).Info("Deleted generated MachineConfig", "machineConfig", c.Name)
	return nil
}

// IsAs reports whether a MachineConfig is as it was generated, however its JSON is written.
func IsAs(existing, want *v1alpha1.MachineConfig) bool {
	after := merged(existing, want)
	return maps.Equal(existing.Labels, after.Labels) && maps.Equal(existing.Annotations, after.Annotations) &&
		reflect.DeepEqual(existing.OwnerReferences, after.OwnerReferences) && reflect.DeepEqual(valueOf(existing.Spec), valueOf(after.Spec))
}

// valueOf returns the spec as values of JSON; nil when it is none.
func valueOf(spec v1alpha1.MachineConfigSpec) (value any) {
	document, err := json.Marshal(spec)
	if err != nil || json.Unmarshal(document, &value) != nil {
		return nil
	}
	return value
}

// merged returns the existing MachineConfig with all that is wanted of it.
func merged(existing, want *v1alpha1.MachineConfig) *v1alpha1.MachineConfig {
	after := existing.DeepCopy()
	after.Spec = *want.Spec.DeepCopy()
	after.Labels = added(after.Labels, want.Labels)
	after.Annotations = added(after.Annotations, want.Annotations)
	for _, owner := range want.OwnerReferences {
		after.OwnerReferences = slices.DeleteFunc(after.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.UID == owner.UID || o.Controller != nil && *o.Controller // an object has one controller
		})
		after.OwnerReferences = append(after.OwnerReferences, owner)
	}
	return after
}

func added(has, more map[string]string) map[string]string {
	if len(more) == 0 {
		return has
	}
	all := maps.Clone(has)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, more)
	return all
}
