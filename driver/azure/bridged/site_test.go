package bridged

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure/azuretest"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/drivertest"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
)

const (
	// programVariable names the program, and sumVariable has its checksum. Without the first one the
	// tests build it.
	programVariable, sumVariable = "BRIDGED_PROGRAM", "BRIDGED_SUM"

	provider     = "Azure"
	subscription = "00000000-0000-0000-0000-00000000000a"
	group        = "shoot--a"
	namespace    = "shoot--a"
	clientID     = "00000000-0000-0000-0000-00000000000c"
	clientSecret = "s3cret-of-the-application"
	userData     = "token: abcdef.0123456789abcdef"
	// tagUID is the tag in which the bridge writes the UID of the Machine.
	tagUID = "machine-uid"
	// startTime bounds the start of the program, on a machine that is busy with other tests.
	startTime = time.Minute
	// pageSize holds the rows of the VMs of all cases but those about pages.
	pageSize = 30
)

// spec is a provider spec of Gardener. Without a key MCM's driver would generate one of 4096 bits
// for each VM.
const spec = `{
	"location": "westeurope", "resourceGroup": "` + group + `",
	"subnetInfo": {"vnetName": "shoot--a", "subnetName": "shoot--a-nodes"},
	"tags": {"Name": "shoot--a", "kubernetes.io-cluster-shoot--a": "1", "kubernetes.io-role-node": "1"},
	"properties": {
		"hardwareProfile": {"vmSize": "Standard_D4_v3"},
		"osProfile": {"adminUsername": "core", "linuxConfiguration": {
			"disablePasswordAuthentication": true, "ssh": {"publicKeys": {"path": "/home/core/.ssh/authorized_keys", "keyData": "ssh-ed25519 AAAA"}}
		}},
		"storageProfile": {
			"imageReference": {"urn": "sap:gardenlinux:greatest:1592.1.0"},
			"osDisk": {"caching": "None", "createOption": "FromImage", "diskSizeGB": 50, "managedDisk": {"storageAccountType": "Standard_LRS"}},
			"dataDisks": [
				{"lun": 0, "name": "kubelet", "storageAccountType": "Standard_LRS", "diskSizeGB": 25},
				{"lun": 1, "storageAccountType": "Standard_LRS", "diskSizeGB": 25, "imageRef": {"urn": "sap:data:disk:1.0.0"}}
			]
		},
		"networkProfile": {"acceleratedNetworking": true},
		"zone": 2
	}
}`

func TestMain(m *testing.M) {
	remove, err := build()
	if err != nil {
		fmt.Fprintln(os.Stderr, "build driver/bridge/azure:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		remove()
		os.Exit(code)
	}))
}

// build builds the program from its own module, unless that was done before.
func build() (remove func(), err error) {
	_ = os.Getenv(sumVariable) // Go's cache of results depends on what a test reads, and on nothing outside of its module
	if os.Getenv(programVariable) != "" {
		return func() {}, nil
	}
	folder, err := os.MkdirTemp("", "bridged")
	if err != nil {
		return nil, err
	}
	remove = func() { _ = os.RemoveAll(folder) }
	program := filepath.Join(folder, "azure-bridge")
	command := exec.CommandContext(context.Background(), "go", "-C", "../../../driver/bridge/azure", "build", "-o", program, ".")
	if printed, err := command.CombinedOutput(); err != nil {
		remove()
		return nil, fmt.Errorf("%w\n%s", err, printed)
	}
	return remove, os.Setenv(programVariable, program)
}

// site is a cloud, and MCM's driver in a separate process that uses it.
type site struct {
	*azuretest.Cloud
	way    *brokenWay
	proxy  *azuretest.Proxy
	clock  *clocktesting.FakeClock
	driver *plugin.Client
}

// open runs a cloud and the program until the test ends.
func open(t *testing.T) *site {
	t.Helper()
	s := &site{clock: clocktesting.NewFakeClock(time.Now())} // tokens are of the real time
	s.Cloud = newCloud(azuretest.Config{Clock: s.clock, PageSize: pageSize})
	s.way = &brokenWay{cloud: s.Cloud}
	var certificate string
	s.proxy, certificate = serve(t, s.way, elsewhere)

	folder, err := os.MkdirTemp("", "azure") //nolint:usetesting // a path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	socket := filepath.Join(folder, "s")
	s.start(t, socket, certificate)
	s.driver, err = plugin.Dial(t.Context(), plugin.Settings{Provider: provider, Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.driver.Close(); err != nil {
			t.Error(err)
		}
	})
	ready, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	if err := s.driver.Ready(ready); err != nil {
		t.Fatal(err)
	}
	return s
}

// newCloud returns a cloud with the application of the tests, and the plan of the image.
func newCloud(cfg azuretest.Config) *azuretest.Cloud {
	cfg.Secrets = map[string]string{clientID: clientSecret}
	cfg.Plans = map[string]bool{"sap:gardenlinux:greatest": true}
	return azuretest.New(cfg)
}

// start starts the program, and kills it when the test ends.
func (s *site) start(t *testing.T, socket, certificate string) {
	t.Helper()
	process := exec.CommandContext(context.WithoutCancel(t.Context()), os.Getenv(programVariable), "--socket="+socket)
	process.Env = append(os.Environ(), environment(s.proxy, certificate)...)
	var printed bytes.Buffer
	process.Stdout, process.Stderr = &printed, &printed
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := process.Process.Kill(); err != nil {
			t.Errorf("the program has ended by itself: %v", err)
		}
		_ = process.Wait() // it was killed
		if t.Failed() {
			t.Logf("%s", printed.Bytes())
		}
		if bytes.Contains(printed.Bytes(), []byte(clientSecret)) {
			t.Error("the program has printed the secret of the application")
		}
	})
}

// environment returns what a process needs to find the cloud behind the proxy.
func environment(proxy *azuretest.Proxy, certificate string) []string {
	return []string{"HTTPS_PROXY=" + proxy.URL(), "NO_PROXY=", "SSL_CERT_FILE=" + certificate}
}

func target() *v1alpha1.MachineClass {
	return &v1alpha1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "class"}, Provider: provider,
		ProviderSpec: runtime.RawExtension{Raw: []byte(spec)},
	}
}

func secret() map[string][]byte {
	return map[string][]byte{
		"clientID": []byte(clientID), "clientSecret": []byte(clientSecret), "subscriptionID": []byte(subscription), "tenantID": []byte("tenant"),
	}
}

// machine returns a Machine, whose UID is of its name.
func machine(name string) *v1alpha1.Machine {
	return &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name)}}
}

// vmID returns the ID of a VM.
func vmID(name string) string {
	return "/subscriptions/" + subscription + "/resourceGroups/" + group + "/providers/Microsoft.Compute/virtualMachines/" + name
}

// providerID returns the provider ID of a VM's Node.
func providerID(vm string) string { return "azure://" + vmID(filepath.Base(vm)) }

// vms returns all VMs that have not begun to end.
func (s *site) vms(*testing.T) (vms []drivertest.VM) {
	for _, r := range s.VMs() {
		if r.State != "Deleting" {
			vms = append(vms, drivertest.VM{ProviderID: providerID(r.ID), MachineUID: types.UID(r.Tags[tagUID])})
		}
	}
	return vms
}

// fail makes the cloud fail, or what is before it. When it is healed connections are cut that still
// wait for an answer, as those of a network that failed.
func (s *site) fail(how drivertest.Failure) (heal func()) {
	if fault, ok := map[drivertest.Failure]azuretest.Fault{
		drivertest.NoAnswer: azuretest.NoAnswer, drivertest.LostAnswer: azuretest.LostAnswer, drivertest.ServerError: azuretest.ServerError,
		drivertest.Throttled: azuretest.Throttled, drivertest.QuotaExceeded: azuretest.Quota, drivertest.NoCapacity: azuretest.NoCapacity,
		drivertest.BadCredentials: azuretest.Unauthorized, drivertest.Forbidden: azuretest.Forbidden,
	}[how]; ok {
		s.Fail(fault)
	} else {
		s.way.how.Store(&how)
	}
	return sync.OnceFunc(func() {
		s.Fail("")
		s.way.how.Store(nil)
		s.proxy.Cut()
	})
}

// serve serves a cloud under Azure's names until the test ends, and writes the certificate of that
// to a file.
func serve(t *testing.T, cloud *brokenWay, others ...string) (*azuretest.Proxy, string) {
	t.Helper()
	proxy, err := azuretest.NewProxy(t.Context(), cloud, others...)
	if err != nil {
		t.Fatal(err)
	}
	certificate := filepath.Join(t.TempDir(), "azure.pem")
	err = os.WriteFile(certificate, proxy.Authority(), 0o600)
	t.Cleanup(func() {
		if err := errors.Join(err, proxy.Close()); err != nil {
			t.Error(err)
		}
	})
	return proxy, certificate
}
