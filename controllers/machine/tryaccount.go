package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// AccountOf names the account of a class to other replicas, by its namespace and without the names of its Secrets.
func AccountOf(class *v1alpha1.MachineClass) string {
	sum := sha256.Sum256([]byte(credentialsOf(class)))
	return class.Namespace + "/" + hex.EncodeToString(sum[:8])
}

// The Machine that TryAccount looks for. No Machine has this UID.
const noMachine, noUID = "no-machine", "00000000-0000-0000-0000-000000000000"

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
	target := driver.Target{
		Class: class, Secret: secrets.Credentials(),
		Machine: &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: noMachine, UID: noUID}},
	}
	if c.cfg.ControlCluster != nil {
		target.ControlCluster = c.cfg.ControlCluster()
	}
	_, answer = cloud.GetMachineStatus(ctx, driver.GetMachineStatusRequest{Target: target})
	return answer, nil
}
