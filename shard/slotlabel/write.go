package slotlabel

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// writeOne labels one object; done is also true if it was deleted. An object that has changed is
// left for the next pass.
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

// patch changes the metadata of an object if it is unchanged since it was read. For a Node, which
// has many writers, only the identity is checked.
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

// adoptAll has orphans adopted by the parents that match them, and reports whether any was.
func (l *Labeler) adoptAll(ctx context.Context, adoptions []policy.Adoption) (adopted bool, err error) {
	for _, a := range adoptions {
		if err := l.adopt(ctx, a.Orphan, &metav1.ObjectMeta{Name: a.Adopter.Name, UID: a.Adopter.UID}); err != nil {
			return adopted, fmt.Errorf("adopt %s %s by %s: %w", a.Orphan.Kind, a.Orphan.Key(), a.Adopter.Name, err)
		}
		adopted = true
	}
	return adopted, nil
}

// adopt makes a parent the controller of an orphan, unless the orphan has changed since it was
// read.
func (l *Labeler) adopt(ctx context.Context, orphan policy.Object, parent metav1.Object) error {
	live, err := l.cfg.Control.Resource(resource(orphan.Kind)).Namespace(orphan.Namespace).Get(ctx, orphan.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	ownerref.Adopt(live, parent, v1alpha1.SchemeGroupVersion.WithKind((orphan.Kind + 1).String()))
	err = l.patch(ctx, orphan, map[string]any{"ownerReferences": live.OwnerReferences})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
