package azure_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure/azuretest"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/drivertest"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
)

// pageSize is that of all lists, so that a test of pages needs few VMs.
const pageSize = 5

// The driver of Azure gives the guarantees of package driver.
func TestDriverConformance(t *testing.T) {
	for name, disks := range map[string]string{"a disk of the VM": emptyDisk, "a disk of an image, too": emptyDisk + "," + diskOfImage} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, func(t *testing.T) drivertest.Env { t.Helper(); return newEnv(t, specOf(disks)) })
		})
	}
}

// It gives them in a separate process, too.
func TestDriverConformanceOverASocket(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, func(t *testing.T) drivertest.Env {
		t.Helper()
		env := newEnv(t, specOf(emptyDisk))
		env.Driver = overSocket(t, env.Driver)
		return env
	})
}

// overSocket serves a driver until the test ends, and returns a client of it.
func overSocket(t *testing.T, d driver.Driver) driver.Driver {
	t.Helper()
	folder, err := os.MkdirTemp("", "azure") //nolint:usetesting // a path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(folder, "s")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	listener, err := plugin.Listen(ctx, socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- plugin.ServeOn(ctx, listener, plugin.Served{Driver: d, Provider: azure.Provider}) }()
	client, err := plugin.Dial(t.Context(), plugin.Settings{Provider: azure.Provider, Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(client.Close(), <-ended, os.RemoveAll(folder)); err != nil {
			t.Error(err)
		}
	})
	if err := client.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	return client
}

func newEnv(t *testing.T, spec string) drivertest.Env {
	t.Helper()
	s := serve(t, azuretest.Config{PageSize: pageSize})
	way := &brokenWay{next: s.transport(t)}
	d := s.driver(t, func(cfg *azure.Config) { cfg.Transport = way })
	other := func(key, value string) map[string][]byte {
		changed := secret()
		changed[key] = []byte(value)
		return changed
	}
	return drivertest.Env{
		CallTimeout: time.Minute, // on a machine that is busy with other tests
		Driver:      d, Class: class(spec), Secret: secret(), UserData: []byte(userData),
		VMs:  s.vms,
		Fail: func(t *testing.T, how drivertest.Failure) func() { t.Helper(); return s.fail(way, how) },
		Hide: func(*testing.T) func() {
			s.HideVMs(true)
			return func() { s.HideVMs(false) }
		},
		// A VM that has ended is one that is being deleted: the cloud does not know it after that.
		EndVM:    func(_ *testing.T, providerID string) { s.End(strings.TrimPrefix(providerID, "azure://")) },
		DoubleVM: func(t *testing.T, m *v1alpha1.Machine) { t.Helper(); s.double(t, m) },
		CreateBare: func(_ *testing.T, m *v1alpha1.Machine) string {
			s.Create(vmID(m.Name), map[string]string{"kubernetes.io-cluster-shoot--a": "1", "kubernetes.io-role-node": "1"})
			return "azure://" + vmID(m.Name)
		},
		CreateWithout: func(_ *testing.T, m *v1alpha1.Machine, controlCluster string, without drivertest.Tag) string {
			s.Create(vmID(m.Name), tagsWithout(m, controlCluster, without))
			return "azure://" + vmID(m.Name)
		},
		Leftovers: func(*testing.T) (machines []types.UID) {
			for _, r := range s.Leftovers() {
				machines = append(machines, types.UID(r.Tags[azure.TagMachineUID]))
			}
			return machines
		},
		OtherScopes: map[string]map[string][]byte{
			"another subscription": other(azure.SecretSubscriptionID, "00000000-0000-0000-0000-00000000000b"),
		},
		Confidential:  []string{azure.SecretClientSecret},
		MoreThanAPage: 2*pageSize + 1,
		BadSpecs: map[string]string{
			"no object":      `"Standard_D4_v3"`,
			"nothing":        `{}`,
			"another type":   strings.Replace(spec, `"zone": 2`, `"zone": "2"`, 1),
			"no placement":   strings.Replace(spec, `"zone": 2`, `"identityID": "i"`, 1),
			"reserved tag":   strings.Replace(spec, `"Name": "shoot--a"`, `"Machine-Controller-Fleet-Machine-UID": "x"`, 1),
			"tag of a sweep": strings.Replace(spec, `"Name": "shoot--a"`, `"machine-controller-fleet-control-cluster": "x"`, 1),
			"disk of 0":      strings.Replace(spec, `"diskSizeGB": 50`, `"diskSizeGB": 0`, 1),
			"no such cloud":  strings.Replace(spec, `"location"`, `"cloudConfiguration": {"name": "AzureMoon"}, "location"`, 1),
			"path in a name": strings.Replace(spec, `"resourceGroup": "shoot--a"`, `"resourceGroup": "../shoot--b"`, 1),
		},
		Volumes: map[string]*corev1.PersistentVolumeSpec{
			"/subscriptions/s/disks/pv-1": {PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.csi.azure.com", VolumeHandle: "/subscriptions/s/disks/pv-1"},
			}},
			"pv-2": {PersistentVolumeSource: corev1.PersistentVolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "pv-2"}}},
		},
	}
}

// vms returns all VMs that have not begun to end.
func (s *site) vms(*testing.T) (vms []drivertest.VM) {
	for _, r := range s.VMs() {
		if r.State != "Deleting" {
			id := strings.Replace(r.ID, "/resourceGroups/"+group, "/resourceGroups/"+strings.ToLower(group), 1)
			vms = append(vms, drivertest.VM{ProviderID: "azure://" + id, MachineUID: types.UID(r.Tags[azure.TagMachineUID])})
		}
	}
	return vms
}

// double creates the second VM that a machine can have: the cloud has one VM of a name, and the
// driver uses two names. So more than two cannot exist, and further calls change nothing.
func (s *site) double(t *testing.T, m *v1alpha1.Machine) {
	t.Helper()
	for _, r := range s.VMs() {
		if r.Tags[azure.TagMachineUID] == string(m.UID) {
			_, second := azure.VMNames(m)
			s.Create(vmID(second), r.Tags)
			return
		}
	}
	t.Fatalf("machine %s has no VM to double", m.Name)
}

// tagsWithout are the tags of a machine's VM, without one of them.
func tagsWithout(m *v1alpha1.Machine, controlCluster string, without drivertest.Tag) map[string]string {
	tags := map[string]string{
		azure.TagNamespace: m.Namespace, azure.TagMachine: m.Name, azure.TagMachineUID: string(m.UID), azure.TagControlCluster: controlCluster,
	}
	delete(tags, map[drivertest.Tag]string{
		drivertest.NamespaceTag: azure.TagNamespace, drivertest.MachineTag: azure.TagMachine,
		drivertest.MachineUIDTag: azure.TagMachineUID, drivertest.ControlClusterTag: azure.TagControlCluster,
	}[without])
	return tags
}

// fail has the cloud, or the connection to it, fail. LostAnswer is about the request that creates a
// VM: a create sends several, and each of the others is lost in TestCutAtEveryRequest.
func (s *site) fail(way *brokenWay, how drivertest.Failure) (heal func()) {
	if fault, ok := map[drivertest.Failure]azuretest.Fault{
		drivertest.NoAnswer: azuretest.NoAnswer, drivertest.LostAnswer: azuretest.LostAnswer, drivertest.ServerError: azuretest.ServerError,
		drivertest.Throttled: azuretest.Throttled, drivertest.QuotaExceeded: azuretest.Quota, drivertest.NoCapacity: azuretest.NoCapacity,
		drivertest.PartialCreate: azuretest.PartialCreate, drivertest.BadCredentials: azuretest.Unauthorized,
		drivertest.Forbidden: azuretest.Forbidden,
	}[how]; ok {
		s.Fail(fault)
		return func() {
			s.Fail("")
			s.clock.Step(2 * drivertest.ThrottledFor) // a driver that was refused sends nothing for that long
		}
	}
	way.how.Store(how)
	return func() { way.how.Store(drivertest.Failure("")) }
}

// brokenWay is a transport that fails in the ways that the cloud cannot.
type brokenWay struct {
	how  atomic.Value
	next http.RoundTripper
}

func (w *brokenWay) RoundTrip(r *http.Request) (*http.Response, error) {
	how, _ := w.how.Load().(drivertest.Failure)
	switch how { //nolint:exhaustive // all others are of the cloud, or false answers
	case drivertest.Unreachable:
		return nil, errors.New("connection refused")
	case drivertest.Nonsense:
		return reply(r, http.StatusNotFound, "<html>not found</html>"), nil
	case drivertest.SecondPage:
		if r.URL.Query().Has("$skiptoken") {
			return reply(r, http.StatusInternalServerError, `{"error": {"code": "InternalServerError", "message": "the page is lost"}}`), nil
		}
	case drivertest.Elsewhere:
		answer := reply(r, http.StatusTemporaryRedirect, "")
		answer.Header.Set("Location", "https://elsewhere.example"+r.URL.Path)
		return answer, nil
	}
	if how == drivertest.Portal {
		return reply(r, http.StatusOK, "<html>log in</html>"), nil
	}
	if body := lie(how, r); body != "" {
		return reply(r, http.StatusOK, body), nil
	}
	return w.next.RoundTrip(r)
}

// lie returns a false answer to a request; "" for none.
func lie(how drivertest.Failure, r *http.Request) string {
	name := path.Base(r.URL.Path)
	vm := map[string]any{
		"id": r.URL.Path, "name": name, "properties": map[string]any{"provisioningState": "Succeeded"},
		"tags": map[string]string{
			azure.TagNamespace: "shoot--a", azure.TagMachine: name, azure.TagMachineUID: "uid-of-" + name, azure.TagControlCluster: cluster,
		},
	}
	switch how { //nolint:exhaustive // all others are no false answers
	case drivertest.Endless:
		return `{"resources": [{}` + strings.Repeat(",{}", 1<<22) + `], "value": [{}` + strings.Repeat(",{}", 1<<22) + `]}`
	case drivertest.WrongTypes:
		return `{"value": "none", "id": 1, "name": ["a"], "tags": "none"}`
	case drivertest.NoID:
		delete(vm, "id")
	case drivertest.BadID:
		vm["id"] = r.URL.Path + "\x00\n"
	case drivertest.OtherVM:
		vm["id"], vm["name"] = path.Dir(r.URL.Path)+"/other", "other"
	default:
		return ""
	}
	var answer any = vm
	switch name {
	case "virtualMachines", "networkInterfaces", "disks":
		answer = map[string]any{"value": []any{vm}}
	}
	raw, _ := json.Marshal(answer) // all of it can be encoded
	return string(raw)
}

func reply(r *http.Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Request: r, Body: io.NopCloser(bytes.NewReader([]byte(body))),
		ContentLength: int64(len(body)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
}
