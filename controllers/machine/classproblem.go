package machine

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/cloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// ClassProblem returns what would keep the first machine of a MachineClass from getting a VM, as far as that is known without a request to
// the cloud; "" if nothing would. It reports fields that the driver ignores on the class, as the first machine would. Errors: those of the API
// server, all of the driver but that the class is wrong, the end of ctx or of the ownership; nothing is known of the class then.
func (c *Controller) ClassProblem(ctx context.Context, key types.NamespacedName) (problem string, err error) {
	m := cloud.NoMachine(key.Namespace)
	m.Spec.Class = v1alpha1.ClassSpec{Kind: "MachineClass", Name: key.Name}
	p := &pass{world: lifecycle.World{Now: c.cfg.Clock.Now(), Machine: m, Limits: c.cfg.Limits}}
	if class, known := c.cfg.View.Classes.Get(key); known {
		c.noteClass(p, c.classes.Newest(class))
	} else if err := c.findClass(ctx, p); err != nil {
		return "", err
	}
	if p.world.Class.Class != nil && p.world.Class.ProviderError == nil {
		if err := c.readSecrets(ctx, p); err != nil {
			return "", fmt.Errorf("read the Secrets of MachineClass %s: %w", key, err)
		}
		if lifecycle.ClassProblem(p.world) == "" {
			if err := c.checkFields(ctx, p); err != nil {
				return "", err
			}
			if is := p.world.Failure; is != nil && is.Code != driver.InvalidArgument {
				return "", fmt.Errorf("ask the driver of MachineClass %s for unknown fields: %s: %s", key, is.Code, is.Message)
			}
		}
	}
	return lifecycle.ClassProblem(p.world), nil
}
