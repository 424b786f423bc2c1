package configcache

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
)

// Standing is whether an object of the target cluster is for the namespace of a Cache: several
// namespaces may have the cluster, each with its own replica.
type Standing int

// The standings. Where the cluster is that of all namespaces each object is Own.
const (
	// Own is for the namespace.
	Own Standing = iota
	// Unclaimed is for the first namespace that claims it.
	Unclaimed
	// OfOther is for another namespace, if that has the cluster: nothing is done for it here.
	OfOther
)

// StandingOfPool returns the standing of a pool: it is for the namespace of the machines that it
// refers to, and without any like other objects.
func (c *Cache) StandingOfPool(pool *v1alpha1.MachineConfigPool) Standing {
	if ref := pool.Spec.MachineRef; ref != nil {
		return c.standing(ref.Namespace)
	}
	return c.Standing(pool)
}

// Standing returns the standing of an object: it is for the namespace of its annotation.
func (c *Cache) Standing(o metav1.Object) Standing {
	return c.standing(o.GetAnnotations()[v1alpha1.AnnotationNamespace])
}

func (c *Cache) standing(namespace string) Standing {
	switch {
	case c.cfg.Namespace == "" || namespace == c.cfg.Namespace:
		return Own
	case namespace == "":
		return Unclaimed
	}
	return OfOther
}

// Claim annotates an object, which is the caller's, for the namespace.
func (c *Cache) Claim(o *metav1.ObjectMeta) {
	metav1.SetMetaDataAnnotation(o, v1alpha1.AnnotationNamespace, c.cfg.Namespace)
}

// Namespace returns that of the Config.
func (c *Cache) Namespace() string { return c.cfg.Namespace }
