package main

import (
	"encoding/json"
	"strings"

	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/api"
	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/provider/helpers"
	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

// ofNode returns the provider ID that cloud-provider-azure gives a VM's Node: the path of the VM,
// with the resource group in lower case. MCM's driver returns azure:///<location>/<VM>, which no
// Node has.
func ofNode(id string, class *v1alpha1.MachineClass, secret *corev1.Secret) string {
	rest, isAzure := strings.CutPrefix(id, "azure:///")
	_, vm, _ := strings.Cut(rest, "/")
	var spec struct {
		ResourceGroup string `json:"resourceGroup"`
	}
	err := json.Unmarshal(class.ProviderSpec.Raw, &spec)
	subscription := helpers.ExtractCredentialsFromData(secret.Data, api.SubscriptionID, api.AzureSubscriptionID)
	if !isAzure || vm == "" || strings.Contains(vm, "/") || err != nil || spec.ResourceGroup == "" || subscription == "" {
		return id
	}
	return "azure:///subscriptions/" + subscription + "/resourceGroups/" + strings.ToLower(spec.ResourceGroup) +
		"/providers/Microsoft.Compute/virtualMachines/" + vm
}
