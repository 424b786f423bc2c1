package machineclass

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
)

// secretMetadata returns the metadata of a Secret if a class of a namespace may use it; nil
// otherwise. Secrets of other namespaces, which this fleet may not be allowed to read, do not
// concern the class.
func (c *Controller) secretMetadata(ctx context.Context, key types.NamespacedName, by string) (*metav1.PartialObjectMetadata, error) {
	if !v1alpha1.MayExist(key) {
		return nil, nil
	}
	secrets := c.cfg.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(key.Namespace)
	about, err := secrets.Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err) && key.Namespace != by:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the metadata of Secret %s: %w", key, err)
	case !v1alpha1.SharedWith(about, by):
		return nil, nil
	}
	return about, nil
}

// keepSecret adds our finalizer to a Secret that a class of a namespace uses.
func (c *Controller) keepSecret(ctx context.Context, key types.NamespacedName, by string) error {
	about, err := c.secretMetadata(ctx, key, by)
	if err != nil || about == nil || about.DeletionTimestamp != nil || slices.Contains(about.Finalizers, v1alpha1.SecretFinalizerName) {
		return err
	}
	return c.updateSecret(ctx, about, func(secret *corev1.Secret) {
		secret.Finalizers = append(secret.Finalizers, v1alpha1.SecretFinalizerName)
	})
}

// reconcileSecret releases a Secret that no class may use and names any more.
func (c *Controller) reconcileSecret(ctx context.Context, key types.NamespacedName) (runner.Result, error) {
	return runner.Result{}, c.releaseSecret(ctx, key, key.Namespace, "")
}

// releaseSecret removes our finalizer from a Secret, for the classes of a namespace, unless a class
// other than the given one keeps it. A Secret that is not, or no longer, shared with that namespace
// is not changed: it is released under its own key.
func (c *Controller) releaseSecret(ctx context.Context, key types.NamespacedName, by string, except types.UID) error {
	about, err := c.secretMetadata(ctx, key, by)
	if err != nil || about == nil || !slices.Contains(about.Finalizers, v1alpha1.SecretFinalizerName) {
		return err
	}
	k := keepers{secret: about, except: except}
	if slices.ContainsFunc(c.cfg.View.Classes.All(), k.keeps) {
		return nil
	}
	hasFinalizer, err := c.isKept(ctx, k)
	if err != nil || hasFinalizer {
		return err
	}
	return c.updateSecret(ctx, about, func(secret *corev1.Secret) {
		secret.Finalizers = slices.DeleteFunc(secret.Finalizers, func(f string) bool { return f == v1alpha1.SecretFinalizerName })
	})
}

// keepers selects the classes that keep a Secret, except one of them. A class that may not use a
// Secret does not keep it: otherwise the Secret's owner could not delete it.
type keepers struct {
	secret metav1.Object
	except types.UID
}

func (k keepers) keeps(class *v1alpha1.MachineClass) bool {
	key := types.NamespacedName{Namespace: k.secret.GetNamespace(), Name: k.secret.GetName()}
	return class.UID != k.except && slices.Contains(class.Finalizers, v1alpha1.FinalizerName) &&
		slices.Contains(class.SecretKeys(), key) && v1alpha1.SharedWith(k.secret, class.Namespace)
}

// mayKeep reports whether a class that cannot be decoded keeps the Secret; if its references cannot
// be decoded either, it may.
func (k keepers) mayKeep(f *decode.Failure) bool {
	var refs struct {
		SecretRef            *corev1.SecretReference `json:"secretRef"`
		CredentialsSecretRef *corev1.SecretReference `json:"credentialsSecretRef"`
	}
	if err := f.Into(&refs); err != nil {
		return slices.Contains(f.Finalizers, v1alpha1.FinalizerName) && v1alpha1.SharedWith(k.secret, f.Namespace)
	}
	return k.keeps(&v1alpha1.MachineClass{
		ObjectMeta: f.ObjectMeta, SecretRef: refs.SecretRef, CredentialsSecretRef: refs.CredentialsSecretRef,
	})
}

// classesPage is the number of classes in one page of a list: a landscape has thousands, and one
// that keeps the Secret ends the search.
const classesPage = 100

// isKept reports, by live lists, whether a class keeps a Secret. Nearly always that is a class of
// its own namespace; if the Secret is shared, it may be in any served namespace.
func (c *Controller) isKept(ctx context.Context, k keepers) (bool, error) {
	places := []string{c.cfg.Namespace}
	if c.cfg.Namespace == metav1.NamespaceAll {
		places = []string{k.secret.GetNamespace()}
		if k.secret.GetAnnotations()[v1alpha1.AnnotationSharedWith] != "" {
			places = append(places, metav1.NamespaceAll)
		}
	}
	if err := c.turn(ctx); err != nil {
		return false, err
	}
	defer func() { <-c.listing }()
	for _, place := range places {
		kept := false
		visit := func(page *v1alpha1.MachineClassList, undecodable []*decode.Failure) (done bool) {
			kept = slices.ContainsFunc(page.Items, func(class v1alpha1.MachineClass) bool { return k.keeps(&class) }) ||
				slices.ContainsFunc(undecodable, k.mayKeep)
			return kept
		}
		what := fmt.Sprintf("the MachineClasses of namespace %q", place)
		if err := decode.UntilPage(ctx, what, metav1.ListOptions{Limit: classesPage},
			c.cfg.Machines.MachineClasses(place).List, visit); err != nil || kept {
			return kept, err
		}
	}
	return false, nil
}

// updateSecret changes a Secret that still has the given metadata. A Secret that was deleted
// meanwhile needs no change.
func (c *Controller) updateSecret(ctx context.Context, about *metav1.PartialObjectMetadata, change func(*corev1.Secret)) error {
	client := c.cfg.Secrets.Secrets(about.Namespace)
	secret, err := client.Get(ctx, about.Name, metav1.GetOptions{})
	if err == nil {
		secret.UID, secret.ResourceVersion = about.UID, about.ResourceVersion // the write fails if the Secret has changed
		change(secret)
		_, err = client.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("change our finalizer on Secret %s/%s: %w", about.Namespace, about.Name, err)
	}
	return nil
}
