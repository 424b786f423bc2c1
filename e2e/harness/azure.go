package harness

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// A lab with the small Azure, and the driver of Azure in a separate process. `make build-azure`
// builds both.
const (
	AzureProvider = "Azure"
	// AzureDriver is the name of the driver's process.
	AzureDriver = "driver-" + AzureProvider
	// AzureClouds and AzureDrivers are for Options.
	AzureClouds  = "azure=azuresim"
	AzureDrivers = AzureProvider + "=azure-driver --endpoint={azure} --ca-file={azure.pem}"
	// TagAzureNamespace, TagAzureUID and TagAzureControlCluster are the tags with the namespace and
	// the UID of the Machine, and the ID of the control cluster.
	TagAzureNamespace      = "machine-controller-fleet-namespace"
	TagAzureUID            = "machine-controller-fleet-machine-uid"
	TagAzureControlCluster = "machine-controller-fleet-control-cluster"
	// AzureGroup is the path of the resource group of namespaces.
	AzureGroup = "/subscriptions/of-the-lab/resourceGroups/of-the-lab"

	azureProcess      = "cloud-azure"
	azureCertificate  = "clouds/azure.pem"
	azureResources    = "/admin/v1/resources"
	azureStop         = "/admin/v1/stop"
	azureClientSecret = "secret-of-the-lab"
)

// azureSpec is the provider spec of machines: with a data disk, so that all kinds of resources are
// created.
const azureSpec = `{
	"location": "westeurope", "resourceGroup": "of-the-lab", "subnetInfo": {"vnetName": "lab", "subnetName": "nodes"},
	"tags": {"kubernetes.io-cluster-lab": "1", "kubernetes.io-role-node": "1"},
	"properties": {
		"hardwareProfile": {"vmSize": "Standard_D4_v3"},
		"osProfile": {"adminUsername": "core", "linuxConfiguration": {"disablePasswordAuthentication": true}},
		"storageProfile": {
			"imageReference": {"id": "/image"},
			"osDisk": {"createOption": "FromImage", "diskSizeGB": 50, "managedDisk": {"storageAccountType": "Standard_LRS"}},
			"dataDisks": [{"lun": 0, "name": "data", "storageAccountType": "Standard_LRS", "diskSizeGB": 10}]
		},
		"zone": 1
	}
}`

// Azure is the small Azure of a lab, as its operator sees it.
type Azure struct {
	endpoint string
	client   *http.Client
}

// Azure returns the small Azure of the lab. Errors: the lab has none.
func (l *Lab) Azure() (*Azure, error) {
	certificate, err := os.ReadFile(filepath.Join(l.Dir, azureCertificate))
	if err != nil {
		return nil, fmt.Errorf("the lab has no Azure: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	return &Azure{endpoint: l.Endpoint(azureProcess), client: &http.Client{Transport: transport}}, nil
}

// AzureResource is a VM, network interface or disk.
type AzureResource struct {
	ID    string            `json:"id"`
	State string            `json:"state"`
	Tags  map[string]string `json:"tags"`
	// User is the ID of the VM that uses a network interface or disk; "" for none.
	User string `json:"user"`
}

// IsVM reports whether the resource is a VM.
func (r AzureResource) IsVM() bool { return strings.Contains(r.ID, "/virtualMachines/") }

// AzureInventory lists all resources, and the VMs that were ever created.
type AzureInventory struct {
	Resources []AzureResource `json:"resources"`
	Created   []AzureResource `json:"created"`
	// Stopped reports whether the request of the last Stop has arrived.
	Stopped bool `json:"stopped"`
}

// Inventory returns all resources, those that are being deleted, too.
func (a *Azure) Inventory(ctx context.Context) (all AzureInventory, err error) {
	err = sendBy(ctx, a.client, http.MethodGet, a.endpoint+azureResources, nil, &all)
	return all, err
}

// Create creates a VM in the resource group that is no fleet's, and returns its ID. It does not
// boot.
func (a *Azure) Create(ctx context.Context, name string, tags map[string]string) (id string, err error) {
	id = AzureGroup + "/providers/Microsoft.Compute/virtualMachines/" + name
	body, err := json.Marshal(AzureResource{ID: id, Tags: tags})
	if err != nil {
		return "", err
	}
	return id, sendBy(ctx, a.client, http.MethodPost, a.endpoint+azureResources, bytes.NewReader(body), nil)
}

// Stop has one request of the driver wait until its client has gone: the one with that number,
// counted from now on, before or after its effect.
func (a *Azure) Stop(ctx context.Context, number int, after bool) error {
	body := fmt.Appendf(nil, `{"number": %d, "after": %t}`, number, after)
	return sendBy(ctx, a.client, http.MethodPost, a.endpoint+azureStop, bytes.NewReader(body), nil)
}

// OneVMEach returns an error if more than one VM was ever created for a machine, and unless one was
// created for each of those with these UIDs.
func (i AzureInventory) OneVMEach(uids ...string) error {
	created := map[string]int{}
	for _, vm := range i.Created {
		created[vm.Tags[TagAzureUID]]++
	}
	for uid, n := range created {
		if n > 1 {
			return fmt.Errorf("for the machine with UID %s %d VMs were created at Azure", uid, n)
		}
	}
	for _, uid := range uids {
		if created[uid] == 0 {
			return fmt.Errorf("for the machine with UID %s no VM was created at Azure, only for %q", uid, slices.Collect(maps.Keys(created)))
		}
	}
	return nil
}

// AzureClass is a class of machines at Azure.
func AzureClass(namespace string) *v1alpha1.MachineClass {
	class := Class(namespace, azureSpec)
	class.Provider = AzureProvider
	return class
}

// AzureSecret is the content of the Secret of such a class.
func AzureSecret() map[string]string {
	return map[string]string{
		v1alpha1.SecretKeyUserData: UserData,
		"clientID":                 "lab",
		"clientSecret":             azureClientSecret,
		"tenantID":                 "of-the-lab",
		"subscriptionID":           "of-the-lab",
	}
}

// PrepareAzure is Prepare with a class of machines at Azure.
func (l *Lab) PrepareAzure(ctx context.Context, namespace string) error {
	return l.prepare(ctx, AzureClass(namespace), AzureSecret())
}
