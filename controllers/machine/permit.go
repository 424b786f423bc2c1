package machine

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/family"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
)

// permit says whether the machine may be given up for its health: that stands on its root.
func (c *Controller) permit(m *v1alpha1.Machine) lifecycle.PermitFact {
	switch {
	case metav1.GetControllerOfNoCopy(m) == nil:
		return lifecycle.PermitUnneeded
	case family.HasPermit(c.cfg.View, m):
		return lifecycle.PermitGiven
	}
	return lifecycle.PermitAwaited
}
