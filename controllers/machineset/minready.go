package machineset

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
)

// countsMinReady reports whether minReadySeconds applies to a set.
func (c *Controller) countsMinReady(set *v1alpha1.MachineSet) bool {
	if root, known := ownerref.RootOfSet(c.cfg.View, set); known {
		return ownerref.CountsMinReady(root, c.cfg.CountMinReady)
	}
	return c.cfg.CountMinReady
}

// deploymentChanged enqueues the sets of a deployment when its annotation about minReadySeconds has changed.
func (c *Controller) deploymentChanged(before, after *v1alpha1.MachineDeployment) {
	if after == nil || minReadyAnnotation(before) == minReadyAnnotation(after) {
		return
	}
	for _, set := range c.cfg.View.Sets.In(after.Namespace) {
		if metav1.IsControlledBy(set, after) {
			c.runner.Enqueue(objectcache.Key(set))
		}
	}
}

func minReadyAnnotation(d *v1alpha1.MachineDeployment) string {
	if d == nil {
		return ""
	}
	return d.Annotations[v1alpha1.AnnotationCountMinReady]
}
