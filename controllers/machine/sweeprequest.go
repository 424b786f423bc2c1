package machine

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// requestSweep asks the leader, by an annotation of the class, to search for VMs that are not the
// machine's. It is written before the failure is: a process that ends between the two writes has
// asked, and the next one asks again. A request that the leader has not answered yet counts for all
// machines of the class.
func (c *classes) requestSweep(ctx context.Context, p *pass) error {
	m, class := p.world.Machine, c.latest.Newest(p.world.Class.Class)
	if class.Annotations[v1alpha1.AnnotationSweepRequested] != "" {
		return nil
	}
	changed := class.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1alpha1.AnnotationSweepRequested, m.Name)
	if _, err := c.latest.Commit(ctx, class, changed); apierrors.IsNotFound(err) {
		return nil // the class is gone, and the sweep of its account with it
	} else if err != nil {
		return fmt.Errorf("request a sweep of orphans on MachineClass %s: %w", class.Name, err)
	}
	klog.FromContext(ctx).Info("Requested sweep of orphans: the cloud has several VMs of the machine",
		telemetry.KeyMachineClass, klog.KObj(class))
	return nil
}
