package cloudsim_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/drivertest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// The driver of the simulated cloud gives the guarantees of package driver.
func TestDriverConformance(t *testing.T) {
	for name, stop := range map[string]time.Duration{"VMs stop at once": 0, "VMs take time to stop": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, func(t *testing.T) drivertest.Env {
				t.Helper()
				return newEnv(t, cloudapi.Duration(stop))
			})
		})
	}
}

// The guarantees hold for the driver in another process, too.
func TestDriverConformanceOverSocket(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, func(t *testing.T) drivertest.Env {
		t.Helper()
		env := newEnv(t, 0)
		env.Driver = drivertest.OverSocket(t, env.Driver)
		return env
	})
}

func newEnv(t *testing.T, stop cloudapi.Duration) drivertest.Env {
	t.Helper()
	site := serve(t, cloudapi.Settings{StopTime: cloudapi.Latency{Mean: stop}})
	way := &brokenWay{}
	cloud, err := simulated.New(simulated.Config{
		Endpoints: []string{site.url, "http://" + elsewhere}, UserAgent: "conformance", Transport: way,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(way.transport.CloseIdleConnections)
	return drivertest.Env{
		Driver:   cloud,
		Class:    &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--a", Name: "class"}, Provider: simulated.Provider},
		UserData: []byte("token: abcdef.0123456789abcdef"),
		VMs:      site.vms,
		Fail:     func(t *testing.T, how drivertest.Failure) func() { t.Helper(); return site.fail(t, way, how) },
		EndVM:    func(t *testing.T, providerID string) { t.Helper(); site.end(t, providerID) },
		DoubleVM: func(t *testing.T, m *v1alpha1.Machine) { t.Helper(); site.double(t, m) },
		CreateBare: func(t *testing.T, m *v1alpha1.Machine) string {
			t.Helper()
			var created cloudapi.Instance
			tags := map[string]string{simulated.TagCluster: m.Namespace, simulated.TagMachine: m.Name}
			site.call(t, http.MethodPost, cloudapi.PathInstances, cloudapi.CreateInstanceRequest{Name: m.Name, Tags: tags}, &created)
			return created.ProviderID
		},
		CreateWithout: func(t *testing.T, m *v1alpha1.Machine, controlCluster string, without drivertest.Tag) string {
			t.Helper()
			var created cloudapi.Instance
			site.call(t, http.MethodPost, cloudapi.PathInstances,
				cloudapi.CreateInstanceRequest{Name: m.Name, Tags: tagsWithout(m, controlCluster, without)}, &created)
			return created.ProviderID
		},
		OtherScopes: map[string]map[string][]byte{
			"a token":                    {simulated.SecretToken: []byte("t0ken-of-a\n")},
			"another token":              {simulated.SecretToken: []byte("t0ken-of-b")},
			"another endpoint":           {simulated.SecretEndpoint: []byte("http://" + elsewhere)},
			"another endpoint and token": {simulated.SecretEndpoint: []byte("http://" + elsewhere), simulated.SecretToken: []byte("t0ken-of-a")},
		},
		Confidential:  []string{simulated.SecretToken},
		Leftovers:     site.leftovers,
		MoreThanAPage: 2*pageSize + 1,
		BadSpecs: map[string]string{
			"unknown field":  `{"machineType": "large"}`,
			"no object":      `"standard-4"`,
			"no such zone":   `{"zone": "moon-1"}`,
			"reserved tag":   `{"tags": {"machine-uid": "x"}}`,
			"tag of a sweep": `{"tags": {"control-cluster": "x"}}`,
			"volume of 0":    `{"dataVolumes": [{"name": "data"}]}`,
			"unknown boot":   `{"boot": "magic"}`,
			"boot not there": `{"boot": "kubelet"}`,
		},
		Volumes: map[string]*corev1.PersistentVolumeSpec{"vol-1": {PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: cloudapi.CSIDriver, VolumeHandle: "vol-1"},
		}}},
	}
}

// tagsWithout are the tags of a machine's VM, without one of them.
func tagsWithout(m *v1alpha1.Machine, controlCluster string, without drivertest.Tag) map[string]string {
	tags := map[string]string{
		simulated.TagCluster: m.Namespace, simulated.TagMachine: m.Name, simulated.TagMachineUID: string(m.UID),
		simulated.TagControlCluster: controlCluster,
	}
	delete(tags, map[drivertest.Tag]string{
		drivertest.NamespaceTag: simulated.TagCluster, drivertest.MachineTag: simulated.TagMachine,
		drivertest.MachineUIDTag: simulated.TagMachineUID, drivertest.ControlClusterTag: simulated.TagControlCluster,
	}[without])
	return tags
}

// site is a cloud that serves.
type site struct {
	url   string
	cloud *cloudsim.Cloud
}

// serve runs a cloud until the test ends.
func serve(t *testing.T, settings cloudapi.Settings) *site {
	t.Helper()
	cloud, err := cloudsim.Open(config(t.TempDir(), settings))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(cloud.Handler())
	ended := make(chan error, 1)
	go func() { ended <- cloud.Run(t.Context()) }()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		if err := errors.Join(<-ended, cloud.Close()); err != nil {
			t.Error(err)
		}
	})
	return &site{url: server.URL, cloud: cloud}
}

// call sends a request that has to work.
func (s *site) call(t *testing.T, method, path string, body, into any) {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s %s (%v)", method, path, resp.Status, answer, err)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *site) all(t *testing.T) []cloudapi.Instance {
	t.Helper()
	var list cloudapi.InstanceList
	s.call(t, http.MethodGet, cloudapi.PathAllInstances, nil, &list)
	return list.Items
}

func (s *site) vms(t *testing.T) []drivertest.VM {
	t.Helper()
	var vms []drivertest.VM
	for _, i := range s.all(t) {
		if i.State == cloudapi.StatePending || i.State == cloudapi.StateRunning {
			vms = append(vms, drivertest.VM{ProviderID: i.ProviderID, MachineUID: types.UID(i.Tags[simulated.TagMachineUID])})
		}
	}
	return vms
}

func (s *site) leftovers(t *testing.T) (machines []types.UID) {
	t.Helper()
	var list cloudapi.LeftoverList
	s.call(t, http.MethodGet, cloudapi.PathAllLeftovers, nil, &list)
	for _, l := range list.Items {
		machines = append(machines, types.UID(l.Tags[simulated.TagMachineUID]))
	}
	return machines
}

func (s *site) end(t *testing.T, providerID string) {
	t.Helper()
	id := providerID[strings.LastIndex(providerID, "/")+1:]
	path := strings.Replace(cloudapi.PathInstanceActions, "{id}", id, 1)
	s.call(t, http.MethodPost, path, cloudapi.InstanceAction{Action: cloudapi.ActionDie}, nil)
}

func (s *site) double(t *testing.T, m *v1alpha1.Machine) {
	t.Helper()
	for _, i := range s.all(t) {
		if i.Tags[simulated.TagMachineUID] == string(m.UID) {
			s.call(t, http.MethodPost, cloudapi.PathInstances, cloudapi.CreateInstanceRequest{Name: i.Name, Tags: i.Tags}, nil)
			return
		}
	}
	t.Fatalf("machine %s has no VM to double", m.Name)
}

// patch changes the settings.
func (s *site) patch(t *testing.T, settings string) {
	t.Helper()
	s.call(t, http.MethodPatch, cloudapi.PathSettings, json.RawMessage(settings), nil)
}

// fail makes the cloud, or the connection to it, fail.
func (s *site) fail(t *testing.T, way *brokenWay, how drivertest.Failure) (heal func()) {
	t.Helper()
	fault := cloudapi.Fault{Rate: 1}
	switch how {
	case drivertest.NoAnswer:
		fault.Kind = cloudapi.FaultTimeoutBefore
	case drivertest.LostAnswer:
		fault.Kind = cloudapi.FaultTimeoutAfter
	case drivertest.ServerError:
		fault.Kind = cloudapi.FaultInternal
	case drivertest.Throttled:
		fault.Kind, fault.RetryAfter = cloudapi.FaultThrottled, cloudapi.Duration(drivertest.ThrottledFor)
	case drivertest.QuotaExceeded:
		fault.Kind = cloudapi.FaultQuota
	case drivertest.NoCapacity:
		fault.Kind = cloudapi.FaultNoCapacity
	case drivertest.PartialCreate:
		fault.Kind = cloudapi.FaultPartial
	case drivertest.BadCredentials:
		fault.Kind = cloudapi.FaultUnauthorized
	case drivertest.Forbidden:
		fault.Kind = cloudapi.FaultForbidden
	case drivertest.Unreachable, drivertest.Nonsense, drivertest.SecondPage, drivertest.Elsewhere, drivertest.Portal, drivertest.Endless,
		drivertest.WrongTypes, drivertest.OtherVM, drivertest.NoID, drivertest.BadID:
		way.how.Store(how)
		return func() { way.how.Store(drivertest.Failure("")) }
	default:
		return nil
	}
	raw, err := json.Marshal(map[string]any{"faults": []cloudapi.Fault{fault}})
	if err != nil {
		t.Fatal(err)
	}
	s.patch(t, string(raw))
	return func() { s.patch(t, `{"faults": null}`) }
}

// pageSize is that of all lists, regardless of the driver's request, so that a test of pages needs
// few VMs.
const pageSize = 5

// brokenWay is a transport that fails in the ways that a cloud cannot.
type brokenWay struct {
	how       atomic.Value
	transport http.Transport
}

func (w *brokenWay) RoundTrip(r *http.Request) (*http.Response, error) {
	how, _ := w.how.Load().(drivertest.Failure)
	body := lie(how, r)
	switch {
	case how == drivertest.Unreachable:
		return nil, errors.New("connection refused")
	case how == drivertest.Nonsense:
		return reply(r, http.StatusNotFound, "<html>not found</html>"), nil
	case how == drivertest.Portal:
		return reply(r, http.StatusOK, "<html>log in</html>"), nil
	case how == drivertest.SecondPage && r.URL.Query().Has(cloudapi.QueryPageToken):
		return reply(r, http.StatusInternalServerError, `{"code": "InternalError", "message": "the page is lost"}`), nil
	case r.Host == elsewhere:
		return reply(r, http.StatusNotFound, `{"code": "NotFound", "message": "there is nothing here"}`), nil
	case how == drivertest.Elsewhere:
		answer := reply(r, http.StatusTemporaryRedirect, "")
		answer.Header.Set("Location", "http://"+elsewhere+r.URL.Path)
		return answer, nil
	case body != "":
		return reply(r, http.StatusOK, body), nil
	}
	if query := r.URL.Query(); query.Has(cloudapi.QueryPageSize) {
		query.Set(cloudapi.QueryPageSize, strconv.Itoa(pageSize))
		r = r.Clone(r.Context())
		r.URL.RawQuery = query.Encode()
	}
	return w.transport.RoundTrip(r)
}

// elsewhere is the target of a redirect.
const elsewhere = "elsewhere.example"

// lie returns a false answer to a call; "" for none.
func lie(how drivertest.Failure, r *http.Request) string {
	vm := cloudapi.Instance{ID: "i-1", ProviderID: cloudapi.ProviderIDPrefix + "sim-1/sim-1a/i-1", Name: "other", State: cloudapi.StateRunning}
	vm.Tags = map[string]string{}
	for _, requested := range r.URL.Query()[cloudapi.QueryTag] {
		if tag, value, found := strings.Cut(requested, "="); found {
			vm.Tags[tag] = value
		}
	}
	switch how { //nolint:exhaustive // all others are no false answers
	case drivertest.Endless:
		return `{"items": [{}` + strings.Repeat(",{}", 1<<22) + `]}`
	case drivertest.WrongTypes:
		return `{"items": "none", "id": 1, "name": ["a"], "tags": "none"}`
	case drivertest.NoID:
		vm.ID = ""
	case drivertest.BadID:
		vm.ID, vm.ProviderID = "i-1\x00\n", vm.ProviderID+"\x00\n"
	case drivertest.OtherVM:
	default:
		return ""
	}
	var answer any = vm
	switch {
	case r.Method != http.MethodGet:
	case r.URL.Path == cloudapi.PathInstances:
		answer = cloudapi.InstanceList{Items: []cloudapi.Instance{vm}}
	case r.URL.Path == cloudapi.PathLeftovers:
		answer = cloudapi.LeftoverList{Items: []cloudapi.Leftover{{ID: vm.ID, Kind: cloudapi.LeftoverDisk, Tags: vm.Tags}}}
	}
	raw, _ := json.Marshal(answer) // all of it can be encoded
	return string(raw)
}

func reply(r *http.Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Request: r,
		Body: io.NopCloser(strings.NewReader(body)),
	}
}
