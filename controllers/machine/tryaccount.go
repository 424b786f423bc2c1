package machine

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TryAccount looks for the VM of a Machine that does not exist, with a MachineClass as the API server has it now. answer is the error of
// the driver, NotFound if the account works. err is why no call was made: the class or its Secrets are missing, invalid, or could not be read.
func (c *Controller) TryAccount(ctx context.Context, key types.NamespacedName) (answer, err error) {
	if !v1alpha1.MayExist(key) || c.cfg.Namespace != metav1.NamespaceAll && c.cfg.Namespace != key.Namespace {
		return nil, fmt.Errorf("expected the MachineClass of a namespace that is served, got %s", key)
	}
	class, err := c.cfg.Machines.MachineClasses(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read MachineClass %s: %w", key, err)
	}
	cloud, err := c.cfg.Drivers.Get(class.Provider)
	if err != nil {
		return nil, fmt.Errorf("MachineClass %s: %w", key, err)
	}
	secrets, err := c.secrets.Read(ctx, class)
	if err == nil && secrets.Missing != "" {
		err = fmt.Errorf("expected Secret %s, got none that the class may use", secrets.Missing)
	}
	if err != nil {
		return nil, fmt.Errorf("read the Secrets of MachineClass %s: %w", key, err)
	}
	return c.cloud.Try(ctx, cloud, class, secrets.Credentials()), nil
}
