package azure_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure/azuretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	subscription = "00000000-0000-0000-0000-00000000000a"
	group        = "shoot--a"
	clientID     = "00000000-0000-0000-0000-00000000000c"
	clientSecret = "s3cret-of-the-application"
	userData     = "token: abcdef.0123456789abcdef"
	cluster      = "uid-of-kube-system"
)

// specOf returns a provider spec, as Gardener writes it, with more data disks.
func specOf(dataDisks string) string {
	return `{
	"location": "westeurope", "resourceGroup": "` + group + `",
	"subnetInfo": {"vnetName": "shoot--a", "subnetName": "shoot--a-nodes"},
	"tags": {"Name": "shoot--a", "kubernetes.io-cluster-shoot--a": "1", "kubernetes.io-role-node": "1"},
	"properties": {
		"hardwareProfile": {"vmSize": "Standard_D4_v3"},
		"osProfile": {"adminUsername": "core", "linuxConfiguration": {"disablePasswordAuthentication": true}},
		"storageProfile": {
			"imageReference": {"urn": "sap:gardenlinux:greatest:1592.1.0"},
			"osDisk": {"caching": "None", "createOption": "FromImage", "diskSizeGB": 50, "managedDisk": {"storageAccountType": "Standard_LRS"}},
			"dataDisks": [` + dataDisks + `]
		},
		"networkProfile": {"acceleratedNetworking": true},
		"zone": 2
	}
}`
}

// specIn returns a provider spec of another resource group.
func specIn(name string) string {
	return strings.Replace(specOf(emptyDisk), `"resourceGroup": "`+group, `"resourceGroup": "`+name, 1)
}

// emptyDisk and diskOfImage are data disks.
const (
	emptyDisk   = `{"lun": 0, "name": "kubelet", "storageAccountType": "Standard_LRS", "diskSizeGB": 25}`
	diskOfImage = `{"lun": 1, "storageAccountType": "Standard_LRS", "diskSizeGB": 25, "imageRef": {"urn": "sap:data:disk:1.0.0"}}`
)

// site is a cloud that serves, and its time.
type site struct {
	*azuretest.Cloud
	server *httptest.Server
	clock  *clocktesting.FakeClock
}

// serve runs a cloud until the test ends.
func serve(t *testing.T, cfg azuretest.Config) *site {
	t.Helper()
	s := &site{clock: clocktesting.NewFakeClock(time.Now())} // tokens are of the real time
	cfg.Clock = s.clock
	cfg.Secrets = map[string]string{clientID: clientSecret}
	cfg.Plans = map[string]bool{"sap:gardenlinux:greatest": true}
	s.Cloud = azuretest.New(cfg)
	s.server = httptest.NewUnstartedServer(s.Cloud)
	s.server.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that tests cut
	s.server.StartTLS()
	t.Cleanup(s.server.Close)
	return s
}

// clouds are the endpoints of a site.
func (s *site) clouds() map[string]cloud.Configuration {
	return map[string]cloud.Configuration{"AzurePublic": {
		ActiveDirectoryAuthorityHost: s.server.URL + "/",
		Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
			cloud.ResourceManager: {Endpoint: s.server.URL, Audience: "https://management.example.com"},
		},
	}}
}

// driver returns a driver for the site, which a test may configure.
func (s *site) driver(t *testing.T, configure func(*azure.Config)) *azure.Driver {
	t.Helper()
	transport := s.transport(t)
	cfg := azure.Config{Clouds: s.clouds(), Transport: transport, Clock: s.clock, UserAgent: "test"}
	if configure != nil {
		configure(&cfg)
	}
	d, err := azure.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// transport returns separate connections to the site.
func (s *site) transport(t *testing.T) *http.Transport {
	t.Helper()
	of, ok := s.server.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatal("the server's client has another transport")
	}
	transport := of.Clone()
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

func secret() map[string][]byte {
	return map[string][]byte{
		azure.SecretClientID: []byte(clientID), azure.SecretClientSecret: []byte(clientSecret + "\n"),
		azure.SecretSubscriptionID: []byte(subscription), azure.SecretTenantID: []byte("tenant"),
	}
}

func class(spec string) *v1alpha1.MachineClass {
	return &v1alpha1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--a", Name: "class"}, Provider: azure.Provider,
		ProviderSpec: runtime.RawExtension{Raw: []byte(spec)},
	}
}

func machine(name string) *v1alpha1.Machine {
	return &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--a", Name: name, UID: types.UID("uid-of-" + name)}}
}

func target(m *v1alpha1.Machine, spec string) driver.Target {
	return driver.Target{Machine: m, Class: class(spec), Secret: secret(), ControlCluster: cluster}
}

// create calls CreateMachine.
func create(t *testing.T, d driver.Driver, of driver.Target) (driver.VM, error) {
	t.Helper()
	resp, err := d.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: of, UserData: []byte(userData)})
	return resp.VM, err
}

// remove calls DeleteMachine, until nothing is left.
func (s *site) remove(t *testing.T, d driver.Driver, of driver.Target) {
	t.Helper()
	for range 100 {
		resp, err := d.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: of})
		if err != nil {
			t.Fatalf("DeleteMachine: %v", err)
		}
		if resp.Gone {
			return
		}
		s.clock.Step(time.Second)
	}
	t.Fatal("DeleteMachine: 100 calls have not removed all")
}

// vmID returns the ID of a VM.
func vmID(name string) string {
	return "/subscriptions/" + subscription + "/resourceGroups/" + group + "/providers/Microsoft.Compute/virtualMachines/" + name
}
