package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure/azuretest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	group     = "/subscriptions/s/resourceGroups/Shoot--A/providers/"
	nic       = group + "Microsoft.Network/networkInterfaces/m-nic"
	vm        = group + "Microsoft.Compute/virtualMachines/m"
	api       = "?api-version=1"
	nicBody   = `{"location": "westeurope", "properties": {}}`
	vmBody    = `{"location": "westeurope", "tags": {"a": "b"}, "properties": {"osProfile": {"computerName": "M", "customData": "Ym9vdA=="}, "networkProfile": {"networkInterfaces": [{"id": "` + nic + `"}]}, "storageProfile": {"osDisk": {"name": "m-os-disk"}}}}`
	tokenForm = "client_id=lab&client_secret=secret-of-the-lab"
)

// hosting is a cloudsim that records what it hosts.
type hosting struct {
	*httptest.Server

	mu      sync.Mutex
	refuses bool
	hosted  []cloudapi.HostedInstance
	ended   []string
}

func newHosting(t *testing.T) *hosting {
	t.Helper()
	h := &hosting{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+cloudapi.PathAllInstances, func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		var body cloudapi.HostedInstance
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || h.refuses {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		h.hosted = append(h.hosted, body)
		_ = json.NewEncoder(w).Encode(cloudapi.Instance{ID: "i-1"})
	})
	mux.HandleFunc("POST "+cloudapi.PathInstanceActions, func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.ended = append(h.ended, r.PathValue("id"))
		w.WriteHeader(http.StatusConflict) // it has ended by itself
	})
	h.Server = httptest.NewServer(mux)
	t.Cleanup(h.Close)
	return h
}

// azure sends a request to the cloud, and returns the answer.
func azure(t *testing.T, cloud http.Handler, token, method, path, body string) string {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	cloud.ServeHTTP(w, r)
	if w.Code >= http.StatusBadRequest {
		t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	return w.Body.String()
}

// newAzure returns a cloud with a VM, and a token for it.
func newAzure(t *testing.T) (cloud *azuretest.Cloud, token string) {
	t.Helper()
	cloud = azuretest.New(azuretest.Config{Secrets: map[string]string{"lab": "secret-of-the-lab"}, DeleteTime: time.Hour})
	var issued struct {
		Token string `json:"access_token"`
	}
	if err := json.Unmarshal([]byte(azure(t, cloud, "", http.MethodPost, "/t/oauth2/v2.0/token", tokenForm)), &issued); err != nil {
		t.Fatal(err)
	}
	azure(t, cloud, issued.Token, http.MethodPut, nic+api, nicBody)
	azure(t, cloud, issued.Token, http.MethodPut, vm+api, vmBody)
	return cloud, issued.Token
}

// A VM that the cloud has created runs at cloudsim, under its own provider ID and with its user
// data, until its deletion begins; each is started and stopped once.
func TestVMsRunAtCloudsim(t *testing.T) {
	cloud, token := newAzure(t)
	cloud.Create(vm+"-without-custom-data", nil)
	host := newHosting(t)
	host.refuses = true
	g := newGuests(cloud, options{cloudsim: host.URL, boot: cloudapi.BootKubelet}, slog.New(slog.DiscardHandler))
	defer g.client.CloseIdleConnections()
	if g.sync(t.Context()) == nil {
		t.Error("no error of a cloudsim that refuses")
	}
	host.refuses = false
	for range 2 {
		if err := g.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	id, _ := cloud.VMs()[0].Properties["vmId"].(string)
	want := []cloudapi.HostedInstance{{
		CreateInstanceRequest: cloudapi.CreateInstanceRequest{
			Name: "m", ClientToken: id, Tags: map[string]string{"a": "b"}, Boot: cloudapi.BootKubelet, UserData: []byte("boot"),
		},
		ProviderID: "azure:///subscriptions/s/resourceGroups/shoot--a/providers/Microsoft.Compute/virtualMachines/m",
	}}
	if diff := cmp.Diff(want, host.hosted); diff != "" || id == "" {
		t.Errorf("hosted (-want +got):\n%s", diff)
	}
	azure(t, cloud, token, http.MethodDelete, vm+api, "")
	for range 2 {
		if err := g.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"i-1"}, host.ended); diff != "" {
		t.Errorf("ended (-want +got):\n%s", diff)
	}
}

// The process serves with the certificate that it writes, shows its operator what there is, and
// creates VMs on request.
func TestServe(t *testing.T) {
	host := newHosting(t)
	file := filepath.Join(t.TempDir(), "azure.pem")
	o, err := parse([]string{"--certificate=" + file, "--cloudsim=" + host.URL}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", o.listen)
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, o, listener, slog.New(slog.DiscardHandler)) }()
	var certificate []byte
	for block := (*pem.Block)(nil); block == nil; block, _ = pem.Decode(certificate) {
		select {
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
		if certificate, err = os.ReadFile(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	send := func(ctx context.Context, method, path, body string) (status int, all inventory, err error) {
		req, err := http.NewRequestWithContext(ctx, method, "https://"+address+path, bytes.NewReader([]byte(body)))
		if err != nil {
			return 0, all, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, all, err
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		_ = json.Unmarshal(raw, &all) // some answers have none
		return resp.StatusCode, all, err
	}
	for _, tc := range []struct {
		method, path, body string
		status             int
	}{
		{http.MethodPost, pathResources, `{"tags": {}}`, http.StatusBadRequest},
		{http.MethodPost, pathResources, `{"id": "` + vm + `", "tags": {"a": "b"}}`, http.StatusOK},
		{http.MethodPost, pathStop, `{"number": 0}`, http.StatusBadRequest},
		{http.MethodPost, pathStop, `{"number": 2}`, http.StatusOK},
		{http.MethodGet, vm, "", http.StatusUnauthorized},
	} {
		if status, _, err := send(t.Context(), tc.method, tc.path, tc.body); status != tc.status || err != nil {
			t.Errorf("%s %s %s: %d, %v; want %d", tc.method, tc.path, tc.body, status, err, tc.status)
		}
	}
	want := []azuretest.Resource{{ID: vm, State: "Succeeded", Tags: map[string]string{"a": "b"}}}
	if _, all, err := send(t.Context(), http.MethodGet, pathResources, ""); cmp.Diff(want, all.Resources) != "" || len(all.Created) != 0 ||
		all.Stopped || err != nil {
		t.Errorf("the inventory is %+v, %v", all, err)
	}
	goes, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, _, err := send(goes, http.MethodGet, vm, "")
		gone <- err
	}()
	for stopped := false; !stopped; {
		_, all, err := send(t.Context(), http.MethodGet, pathResources, "")
		if err != nil {
			t.Fatal(err)
		}
		stopped = all.Stopped
	}
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the stopped request: %v, want no answer", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestFlags(t *testing.T) {
	required := []string{"--certificate=c", "--cloudsim=u"}
	if _, err := parse(required, io.Discard); err != nil {
		t.Error(err)
	}
	for _, args := range [][]string{
		nil,
		{"--certificate=c"},
		append(required, "word"), append(required, "--boot=x"), append(required, "--create-time=-1s"),
		append(required, "--burst=0"),
	} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}
