package machine

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption/recorded"
)

// disruption returns whether the machine may be replaced because it is unhealthy, as recorded on its root.
func (c *Controller) disruption(m *v1alpha1.Machine) lifecycle.DisruptionFact {
	switch {
	case metav1.GetControllerOfNoCopy(m) == nil:
		return lifecycle.DisruptionUnneeded
	case recorded.Has(c.cfg.View, m):
		return lifecycle.DisruptionAllowed
	}
	return lifecycle.DisruptionPending
}
