package main

import (
	"context"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure/azuretest"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const spec = `{
	"location": "westeurope", "resourceGroup": "shoot--a", "subnetInfo": {"vnetName": "v", "subnetName": "s"},
	"tags": {"kubernetes.io-cluster-shoot--a": "1", "kubernetes.io-role-node": "1"},
	"properties": {
		"hardwareProfile": {"vmSize": "Standard_D4_v3"}, "osProfile": {"adminUsername": "core"}, "zone": 1,
		"storageProfile": {"imageReference": {"id": "/image"}, "osDisk": {"createOption": "FromImage", "diskSizeGB": 50}}
	}
}`

// A VM is created and deleted by the process over its socket, and its requests are counted.
func TestServe(t *testing.T) {
	server := httptest.NewTLSServer(azuretest.New(azuretest.Config{Secrets: map[string]string{"c": "s3cret-of-c"}}))
	defer server.Close()
	folder, err := os.MkdirTemp("", "azure") //nolint:usetesting // a path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	}()
	socket, certificates := filepath.Join(folder, "s"), filepath.Join(folder, "ca.pem")
	if err := os.WriteFile(certificates,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	metrics := freeAddress(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		o, err := parse([]string{"--socket=" + socket, "--endpoint=" + server.URL, "--ca-file=" + certificates, "--metrics-address=" + metrics},
			io.Discard)
		if err == nil {
			err = run(ctx, o)
		}
		ended <- err
	}()
	client, err := plugin.Dial(t.Context(), plugin.Settings{Provider: azure.Provider, Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	of := driver.Target{
		Machine: &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--a", Name: "m", UID: "uid"}},
		Class: &v1alpha1.MachineClass{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--a", Name: "c"}, Provider: azure.Provider,
			ProviderSpec: runtime.RawExtension{Raw: []byte(spec)},
		},
		Secret: map[string][]byte{
			"clientID": []byte("c"), "clientSecret": []byte("s3cret-of-c"), "tenantID": []byte("t"), "subscriptionID": []byte("s"),
		},
	}
	const timeout = 20 * time.Second
	listening, cancelListening := context.WithTimeout(t.Context(), timeout)
	defer cancelListening()
	if err := client.Ready(listening); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: of, UserData: []byte("boot")}); err != nil {
		t.Fatal(err)
	}
	resp, err := client.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: of})
	if err != nil || resp.ProviderID != "azure:///subscriptions/s/resourceGroups/shoot--a/providers/Microsoft.Compute/virtualMachines/m" {
		t.Errorf("%+v, %v; want the VM", resp, err)
	}
	if text := get(t, "http://"+metrics+"/metrics"); !strings.Contains(text,
		`mcm_cloud_api_requests_total{provider="azure",service="virtual_machine_create"} 1`) {
		t.Errorf("the request is not counted:\n%s", text)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"--replicas=0"}, {"word"}, {"--unknown"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
	missing := filepath.Join(t.TempDir(), "missing")
	for _, o := range []options{{endpoint: "login"}, {endpoint: "https://a", certificates: missing}} {
		if err := run(t.Context(), o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// freeAddress returns an address on which no process listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// get returns the body of an answer.
func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
