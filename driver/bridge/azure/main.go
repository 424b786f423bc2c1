// Command azure serves Machine Controller Manager's driver for Azure to a fleet.
// docs/drivers/bridge.md describes it.
package main

import (
	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/access"
	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/api"
	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/provider"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/bridge"
)

func main() {
	bridge.Main("Azure", provider.NewDefaultDriver(access.NewDefaultAccessFactory()), bridge.Options{
		TagField: "tags", ProviderID: ofNode, ProviderSpec: api.AzureProviderSpec{},
	})
}
