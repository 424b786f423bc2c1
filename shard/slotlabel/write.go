package slotlabel

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// writeOne labels one object; done is also true if it was deleted. An object that has changed is left for the next pass.
func (l *Labeler) writeOne(ctx context.Context, o policy.Object, slot int) (done bool, err error) {
	metadata := map[string]any{"labels": map[string]string{v1alpha1.LabelSlot: policy.Value(slot)}}
	err = l.patch(ctx, o, metadata)
	switch {
	case apierrors.IsConflict(err):
		return false, nil
	case apierrors.IsNotFound(err):
		return true, nil
	}
	return err == nil, err
}

// patch changes the metadata of an object if it is unchanged since it was read. For a Node, which has many writers, only the
// identity is checked.
func (l *Labeler) patch(ctx context.Context, o policy.Object, metadata map[string]any) error {
	client := l.cfg.Control
	metadata["uid"] = o.UID
	if o.Kind == policy.Node {
		client = l.cfg.Target
	} else {
		metadata["resourceVersion"] = o.ResourceVersion
	}
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encode the patch: %w", err)
	}
	_, err = client.Resource(resource(o.Kind)).Namespace(o.Namespace).
		Patch(ctx, o.Name, types.MergePatchType, data, metav1.PatchOptions{})
	return err
}

// offer lets parents that match orphans adopt them. It reads the parents live, and reports whether any orphan was adopted.
func (l *Labeler) offer(ctx context.Context, orphans []policy.Object) (adopted bool, err error) {
	if len(orphans) == 0 {
		return false, nil
	}
	namespace := orphans[0].Namespace
	sets, err := l.cfg.Machines.MachineSets(namespace).List(ctx, metav1.ListOptions{})
	if _, err = decode.Missing(err); err != nil { // a parent that cannot be decoded adopts when it can be decoded
		return false, fmt.Errorf("list MachineSets for adoption: %w", err)
	}
	deployments, err := l.cfg.Machines.MachineDeployments(namespace).List(ctx, metav1.ListOptions{})
	if _, err = decode.Missing(err); err != nil {
		return false, fmt.Errorf("list MachineDeployments for adoption: %w", err)
	}
	for _, orphan := range orphans {
		var parent metav1.Object
		var found bool
		if orphan.Kind == policy.Machine {
			parent, found = policy.Adopter(orphan, pointers(sets.Items), func(s *v1alpha1.MachineSet) *metav1.LabelSelector { return s.Spec.Selector })
		} else {
			parent, found = policy.Adopter(orphan, pointers(deployments.Items), func(d *v1alpha1.MachineDeployment) *metav1.LabelSelector { return d.Spec.Selector })
		}
		if !found {
			continue
		}
		if err := l.adopt(ctx, orphan, parent); err != nil {
			return adopted, fmt.Errorf("adopt %s %s by %s: %w", orphan.Kind, orphan.Key(), parent.GetName(), err)
		}
		adopted = true
	}
	return adopted, nil
}

func pointers[T any](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}

// adopt makes a parent the controller of an orphan, unless the orphan has changed since it was read.
func (l *Labeler) adopt(ctx context.Context, orphan policy.Object, parent metav1.Object) error {
	live, err := l.cfg.Control.Resource(resource(orphan.Kind)).Namespace(orphan.Namespace).Get(ctx, orphan.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if live.ResourceVersion != orphan.ResourceVersion || live.UID != orphan.UID {
		return nil
	}
	ownerref.Adopt(live, parent, v1alpha1.SchemeGroupVersion.WithKind((orphan.Kind + 1).String()))
	err = l.patch(ctx, orphan, map[string]any{"ownerReferences": live.OwnerReferences})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
