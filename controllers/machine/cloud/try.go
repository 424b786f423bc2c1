package cloud

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// AccountOf names the account of a class to other replicas, by its namespace and without the names
// of its Secrets.
func AccountOf(class *v1alpha1.MachineClass) string {
	sum := sha256.Sum256([]byte(credentialsOf(class)))
	return class.Namespace + "/" + hex.EncodeToString(sum[:8])
}

// NoMachine returns a Machine that does not exist: no Machine has this UID.
func NoMachine(namespace string) *v1alpha1.Machine {
	return &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "no-machine", UID: "00000000-0000-0000-0000-000000000000"},
	}
}

// Try looks for the VM of a Machine that does not exist, with a class and its credentials, and
// returns the error of the driver: NotFound if the account works. No circuit breaker holds this
// call, and none counts it.
func (c *Client) Try(ctx context.Context, cloud driver.Driver, class *v1alpha1.MachineClass, secret map[string][]byte) error {
	target := c.complete(driver.Target{Machine: NoMachine(class.Namespace), Class: class, Secret: secret})
	_, err := cloud.GetMachineStatus(ctx, driver.GetMachineStatusRequest{Target: target})
	return err
}
