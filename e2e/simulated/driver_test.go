package simulated

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a cloud with scripted answers, which records its requests. The conformance suite
// against the real server is in e2e/lab/cloudsim.
type script struct {
	mu       sync.Mutex
	answers  []answer
	requests []string
	bodies   []string
	header   http.Header
}

type answer struct {
	status int
	header map[string]string
	body   any // a string is sent as it is
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	s.requests, s.bodies, s.header = append(s.requests, r.Method+" "+r.URL.String()), append(s.bodies, string(body)), r.Header
	if len(s.answers) == 0 {
		panic(http.ErrAbortHandler)
	}
	a := s.answers[0]
	s.answers = s.answers[1:]
	for key, value := range a.header {
		w.Header().Set(key, value)
	}
	w.WriteHeader(a.status)
	if text, ok := a.body.(string); ok {
		fmt.Fprint(w, text)
	} else {
		_ = json.NewEncoder(w).Encode(a.body)
	}
}

// unserved is an endpoint that is allowed and on which no server listens.
const unserved = "http://127.0.0.1:1"

// against returns a driver whose cloud gives these answers, one after the other, and then none.
func against(t *testing.T, answers ...answer) (*Driver, *script) {
	t.Helper()
	cloud := &script{answers: answers}
	server := httptest.NewServer(cloud)
	t.Cleanup(server.Close)
	d, err := New(Config{Endpoints: []string{server.URL, unserved}, UserAgent: "the test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.client.CloseIdleConnections)
	return d, cloud
}

func refusal(status int, code cloudapi.ErrorCode) answer {
	return answer{status: status, body: cloudapi.ErrorBody{Code: code, Message: "because"}}
}

func vm(state cloudapi.InstanceState) cloudapi.Instance {
	return cloudapi.Instance{
		ID: "i-1", ProviderID: "simulated:///r/z/i-1", Name: "a", State: state, PrivateIP: "10.64.0.2", SourceDestCheck: true,
		Tags: map[string]string{TagMachineUID: "uid-a", TagCluster: "ns"},
	}
}

func target(spec string) driver.Target {
	return driver.Target{
		Machine: &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "uid-a"}},
		Class: &v1alpha1.MachineClass{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}, ProviderSpec: runtime.RawExtension{Raw: []byte(spec)},
		},
	}
}

func withID(t driver.Target, providerID string) driver.Target {
	t.Machine = t.Machine.DeepCopy()
	t.Machine.Spec.ProviderID = providerID
	return t
}

func TestCreate(t *testing.T) {
	d, cloud := against(t, answer{status: 200, body: vm(cloudapi.StatePending)})
	tgt := target(`{"zone": "z", "tags": {"mine": "x"}}`)
	tgt.Secret = map[string][]byte{SecretToken: []byte("s3cret\n")}
	resp, err := d.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: tgt, UserData: []byte("boot")})
	if err != nil {
		t.Fatal(err)
	}
	want := driver.CreateMachineResponse{VM: driver.VM{ProviderID: "simulated:///r/z/i-1", NodeName: "a", Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.64.0.2"}, {Type: corev1.NodeHostName, Address: "a"},
	}, State: "pending"}}
	if diff := cmp.Diff(want, resp); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
	var sent cloudapi.CreateInstanceRequest
	if err := json.Unmarshal([]byte(cloud.bodies[0]), &sent); err != nil {
		t.Fatal(err)
	}
	wantSent := cloudapi.CreateInstanceRequest{
		Name: "a", ClientToken: "uid-a", Zone: "z", UserData: []byte("boot"),
		Tags: map[string]string{"mine": "x", TagCluster: "ns", TagMachine: "a", TagMachineUID: "uid-a"},
	}
	if diff := cmp.Diff(wantSent, sent); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if agent, auth := cloud.header.Get("User-Agent"), cloud.header.Get("Authorization"); agent != "the test" || auth != "Bearer s3cret" {
		t.Errorf("sent by %q with %q", agent, auth)
	}
}

func TestCreateFindsTheVMOfOtherParameters(t *testing.T) {
	mismatch := refusal(http.StatusConflict, cloudapi.CodeIdempotencyMismatch)
	for name, c := range map[string]struct {
		found answer
		want  driver.Code
	}{
		"it lives":     {answer{200, nil, cloudapi.InstanceList{Items: []cloudapi.Instance{vm(cloudapi.StateRunning)}}}, driver.OK},
		"it has ended": {answer{200, nil, cloudapi.InstanceList{}}, driver.AlreadyExists},
		"not answered": {refusal(http.StatusServiceUnavailable, cloudapi.CodeUnavailable), driver.Unavailable},
		"there are two": {
			answer{200, nil, cloudapi.InstanceList{Items: []cloudapi.Instance{vm(cloudapi.StateRunning), vm(cloudapi.StatePending)}}},
			driver.OutOfRange,
		},
	} {
		d, _ := against(t, mismatch, c.found)
		resp, err := d.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: target("")})
		if code := driver.CodeOf(err); code != c.want || (code == driver.OK) != (resp.ProviderID != "") {
			t.Errorf("%s: %v, %+v; want %v", name, err, resp, c.want)
		}
	}
}

func TestCreateOfAMachineWhoseVMHasEnded(t *testing.T) {
	for _, state := range []cloudapi.InstanceState{cloudapi.StateStopping, cloudapi.StateTerminated} {
		d, _ := against(t, answer{status: 200, body: vm(state)})
		if _, err := d.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: target("")}); driver.CodeOf(err) != driver.Aborted {
			t.Errorf("%s: %v, want Aborted", state, err)
		}
	}
}

// Each error code of the cloud, and answers of things that are not the cloud.
func TestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		answer answer
		want   driver.Code
		after  time.Duration
	}{
		"invalid":      {refusal(400, cloudapi.CodeInvalidParameter), driver.InvalidArgument, 0},
		"unauthorized": {refusal(401, cloudapi.CodeUnauthorized), driver.Unauthenticated, 0},
		"forbidden":    {refusal(403, cloudapi.CodeForbidden), driver.PermissionDenied, 0},
		"quota":        {refusal(403, cloudapi.CodeQuotaExceeded), driver.ResourceExhausted, 0},
		"not found":    {refusal(404, cloudapi.CodeNotFound), driver.NotFound, 0},
		"conflict":     {refusal(409, cloudapi.CodeConflict), driver.Aborted, 0},
		"mismatch":     {refusal(409, cloudapi.CodeIdempotencyMismatch), driver.AlreadyExists, 0},
		"internal":     {refusal(500, cloudapi.CodeInternal), driver.Internal, 0},
		"capacity":     {refusal(503, cloudapi.CodeNoCapacity), driver.ResourceExhausted, 0},
		"unavailable":  {refusal(503, cloudapi.CodeUnavailable), driver.Unavailable, 0},
		"new code":     {refusal(418, "Teapot"), driver.Unknown, 0},
		"throttled": {
			answer{429, map[string]string{"Retry-After": "2"}, cloudapi.ErrorBody{Code: cloudapi.CodeThrottled, RetryAfterSeconds: 1.5}},
			driver.Unavailable, 1500 * time.Millisecond,
		},
		"header only": {
			answer{429, map[string]string{"Retry-After": "2"}, cloudapi.ErrorBody{Code: cloudapi.CodeThrottled}},
			driver.Unavailable,
			2 * time.Second,
		},
		"far too long": {
			answer{429, nil, cloudapi.ErrorBody{Code: cloudapi.CodeThrottled, RetryAfterSeconds: 1e12}}, driver.Unavailable, driver.MaxRetryAfter,
		},
		"no time": {
			answer{429, map[string]string{"Retry-After": "later"}, cloudapi.ErrorBody{Code: cloudapi.CodeThrottled}}, driver.Unavailable, 0,
		},
		"proxy 404":      {answer{404, nil, "<html>"}, driver.Unknown, 0},
		"proxy 403":      {answer{403, nil, "<html>"}, driver.PermissionDenied, 0},
		"proxy 407":      {answer{407, nil, ""}, driver.Unauthenticated, 0},
		"proxy 502":      {answer{502, nil, ""}, driver.Unavailable, 0},
		"proxy 504":      {answer{504, nil, "{}"}, driver.DeadlineExceeded, 0},
		"proxy 500":      {answer{500, nil, "null"}, driver.Unknown, 0},
		"nonsense":       {answer{200, nil, "<html>"}, driver.Unknown, 0},
		"another 2xx":    {answer{204, nil, ""}, driver.Unknown, 0},
		"half an answer": {answer{200, map[string]string{"Content-Length": "100"}, "{"}, driver.Unavailable, 0},
	} {
		d, _ := against(t, c.answer, c.answer) // by provider ID, and where there is none by UID
		_, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: withID(target(""), "simulated:///r/z/i-1")})
		if code := driver.CodeOf(err); code != c.want || driver.RetryAfterOf(err) != c.after {
			t.Errorf("%s: %v after %v, want %v after %v: %v", name, code, driver.RetryAfterOf(err), c.want, c.after, err)
		}
	}
}

func TestNoAnswer(t *testing.T) {
	tgt := withID(target(""), "simulated:///r/z/i-1")
	d, _ := against(t)
	if _, err := d.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: tgt}); driver.CodeOf(err) != driver.Unavailable {
		t.Errorf("a connection that was cut: %v, want Unavailable", err)
	}
	tgt.Secret = map[string][]byte{SecretEndpoint: []byte(unserved)}
	if _, err := d.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: tgt}); driver.CodeOf(err) != driver.Unavailable {
		t.Errorf("no server: %v, want Unavailable", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.DeleteMachine(ctx, driver.DeleteMachineRequest{Target: tgt}); driver.CodeOf(err) != driver.Canceled {
		t.Errorf("a context that has ended: %v, want Canceled", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	if _, err := d.DeleteMachine(ctx, driver.DeleteMachineRequest{Target: tgt}); driver.CodeOf(err) != driver.DeadlineExceeded {
		t.Errorf("a deadline that has passed: %v, want DeadlineExceeded", err)
	}
}

func TestDelete(t *testing.T) {
	list := func(states ...cloudapi.InstanceState) answer {
		var items []cloudapi.Instance
		for _, state := range states {
			items = append(items, vm(state))
		}
		return answer{200, nil, cloudapi.InstanceList{Items: items}}
	}
	cleared := answer{200, nil, cloudapi.LeftoverList{Items: []cloudapi.Leftover{{ID: "left-1"}}}}
	for name, c := range map[string]struct {
		target   driver.Target
		answers  []answer
		gone     bool
		want     driver.Code
		requests int
	}{
		"ends at once": {withID(target(""), "simulated:///r/z/i-1"), []answer{{200, nil, vm(cloudapi.StateTerminated)}}, true, driver.OK, 1},
		"takes time":   {withID(target(""), "simulated:///r/z/i-1"), []answer{{200, nil, vm(cloudapi.StateStopping)}}, false, driver.OK, 1},
		"does not exist": {
			withID(target(""), "simulated:///r/z/i-1"), []answer{refusal(404, cloudapi.CodeNotFound), list(), cleared}, true, driver.OK, 3,
		},
		"spec is broken": {
			withID(target("broken"), "simulated:///r/z/i-1"), []answer{{200, nil, vm(cloudapi.StateTerminated)}}, true, driver.OK, 1,
		},
		"of another cloud": {withID(target(""), "aws:///eu-west-1/i-1"), []answer{list(), cleared}, true, driver.OK, 2},
		"another machine's": {
			withID(target(""), "simulated:///r/z/i-1"), []answer{refusal(412, cloudapi.CodePreconditionFailed), list(), cleared}, true, driver.OK, 3,
		},
		"nothing to go by": {driver.Target{Machine: &v1alpha1.Machine{}, Class: target("").Class}, nil, false, driver.InvalidArgument, 0},
		"by UID, none":     {target(""), []answer{list(), cleared}, true, driver.OK, 2},
		"by UID, two": {target(""), []answer{
			list(cloudapi.StateRunning, cloudapi.StateStopping), {200, nil, vm(cloudapi.StateTerminated)}, {200, nil, vm(cloudapi.StateStopping)},
		}, false, driver.OK, 3},
		"by UID, deleted": {
			target(""), []answer{list(cloudapi.StateRunning), refusal(404, cloudapi.CodeNotFound), cleared}, true, driver.OK, 3,
		},
		"left-overs stay":   {target(""), []answer{list(), refusal(500, cloudapi.CodeInternal)}, false, driver.Internal, 2},
		"by UID, no answer": {target(""), []answer{refusal(500, cloudapi.CodeInternal)}, false, driver.Internal, 1},
	} {
		d, cloud := against(t, c.answers...)
		resp, err := d.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: c.target})
		if resp.Gone != c.gone || driver.CodeOf(err) != c.want || len(cloud.requests) != c.requests {
			t.Errorf("%s: gone=%t, %v, %d requests; want %t, %v, %d", name, resp.Gone, err, len(cloud.requests), c.gone, c.want, c.requests)
		}
	}
}

func TestInitialize(t *testing.T) {
	d, cloud := against(t)
	if _, err := d.InitializeMachine(t.Context(),
		driver.InitializeMachineRequest{Target: target("")}); driver.CodeOf(err) != driver.Unimplemented || len(cloud.requests) > 0 {
		t.Errorf("nothing to do: %v after %d requests, want Unimplemented after none", err, len(cloud.requests))
	}
	tgt := withID(target(`{"sourceDestCheck": false}`), "simulated:///r/z/i-1")
	d, cloud = against(t, answer{200, nil, vm(cloudapi.StateRunning)}, answer{200, nil, vm(cloudapi.StateRunning)})
	resp, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: tgt})
	if driver.CodeOf(err) != driver.Uninitialized || resp.ProviderID == "" {
		t.Errorf("before: %v, %+v; want Uninitialized and the VM", err, resp)
	}
	if _, err := d.InitializeMachine(t.Context(), driver.InitializeMachineRequest{Target: tgt}); err != nil {
		t.Error(err)
	}
	if got := cloud.requests[1] + " " +
		cloud.bodies[1]; got != `PATCH /v1/instances/i-1/attributes?ifTag=machine-uid%3Duid-a {"sourceDestCheck":false}` {
		t.Errorf("requested %s", got)
	}
}

// A provider ID that names no VM, as one that was edited, does not hide the VM with the UID.
func TestStatusWithAProviderIDThatNamesNothing(t *testing.T) {
	d, cloud := against(t,
		refusal(404, cloudapi.CodeNotFound), answer{200, nil, cloudapi.InstanceList{Items: []cloudapi.Instance{vm(cloudapi.StateRunning)}}})
	resp, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: withID(target(""), "simulated:///r/z/i-2")})
	if err != nil || resp.ProviderID != "simulated:///r/z/i-1" || len(cloud.requests) != 2 {
		t.Errorf("%+v, %v after %d requests; want the VM after 2", resp, err, len(cloud.requests))
	}
}

// A spec that was broken after the create must not hide the VM.
func TestStatusWithABrokenSpec(t *testing.T) {
	d, _ := against(t, answer{200, nil, vm(cloudapi.StateRunning)})
	resp, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: withID(target(`{"x": 1}`), "simulated:///r/z/i-1")})
	if err != nil || resp.ProviderID == "" {
		t.Errorf("%+v, %v; want the VM", resp, err)
	}
}

func TestListReadsEachPage(t *testing.T) {
	second := vm(cloudapi.StateRunning)
	second.ID, second.ProviderID, second.Name = "i-2", "simulated:///r/z/i-2", "b"
	d, cloud := against(t,
		answer{200, nil, cloudapi.InstanceList{Items: []cloudapi.Instance{vm(cloudapi.StatePending)}, NextPageToken: "p2"}},
		answer{200, nil, cloudapi.InstanceList{Items: []cloudapi.Instance{second}}},
	)
	resp, err := d.ListMachines(t.Context(), driver.ListMachinesRequest{Class: target("").Class})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"simulated:///r/z/i-1": "a", "simulated:///r/z/i-2": "b"}, resp.Machines); diff != "" {
		t.Errorf("machines (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"GET /v1/instances?pageSize=1000&state=pending&state=running&tag=cluster%3Dns",
		"GET /v1/instances?pageSize=1000&pageToken=p2&state=pending&state=running&tag=cluster%3Dns",
	}, cloud.requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestListThatDoesNotEnd(t *testing.T) {
	page := answer{200, nil, cloudapi.InstanceList{NextPageToken: "again"}}
	d, cloud := against(t, page, page, page)
	if _, err := d.ListMachines(t.Context(), driver.ListMachinesRequest{Class: target("").Class}); driver.CodeOf(err) != driver.Internal {
		t.Errorf("%v after %d requests, want Internal", err, len(cloud.requests))
	}
}

func TestEndpoints(t *testing.T) {
	for _, bad := range []string{"127.0.0.1:1", "ftp://cloud", "http://", "http://a b"} {
		if _, err := New(Config{Endpoints: []string{bad}}); err == nil {
			t.Errorf("%q is accepted as an endpoint", bad)
		}
	}
	var requested atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requested.Add(1) }))
	defer elsewhere.Close()
	for name, c := range map[string]struct {
		allowed  []string
		endpoint string
	}{
		"none is allowed":                        {nil, ""},
		"none is allowed, and one is configured": {nil, elsewhere.URL},
		"nonsense":                               {[]string{unserved}, "nonsense"},
		"another than is allowed":                {[]string{unserved}, elsewhere.URL},
		"a user":                                 {[]string{elsewhere.URL}, strings.Replace(elsewhere.URL, "http://", "http://user:secret@", 1)},
	} {
		d, err := New(Config{Endpoints: c.allowed})
		if err != nil {
			t.Fatal(err)
		}
		tgt := target("")
		tgt.Secret = map[string][]byte{SecretEndpoint: []byte(c.endpoint), SecretToken: []byte("t")}
		_, err = d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: tgt})
		if driver.CodeOf(err) != driver.InvalidArgument || !strings.Contains(err.Error(), SecretEndpoint) ||
			strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: %v, want InvalidArgument that names the key", name, err)
		}
	}
	if got := requested.Load(); got > 0 {
		t.Errorf("%d requests were sent", got)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add(404, "", []byte(`{"code": "NotFound", "message": "x"}`))
	f.Add(429, "3", []byte(`{"code": "Throttled", "retryAfterSeconds": 1e300}`))
	f.Add(503, "-1", []byte(`<html>`))
	f.Fuzz(func(t *testing.T, status int, after string, body []byte) {
		err := answerError(driver.OpStatus, status, http.Header{"Retry-After": {after}}, body)
		if err.Code == driver.OK || err.RetryAfter < 0 || err.RetryAfter > driver.MaxRetryAfter {
			t.Errorf("%d %q %q: %v, retry after %v", status, after, body, err, err.RetryAfter)
		}
		var decoded cloudapi.ErrorBody
		if err.Code == driver.NotFound && (json.Unmarshal(body, &decoded) != nil || decoded.Code != cloudapi.CodeNotFound) {
			t.Errorf("%d %q: NotFound, which the cloud did not answer", status, body)
		}
	})
}

func FuzzProviderID(f *testing.F) {
	f.Add("simulated:///r/z/i-1")
	f.Add("simulated:///r/z/..")
	f.Add("simulated:///r/z/a/b")
	f.Fuzz(func(t *testing.T, providerID string) {
		id, ok := parseProviderID(providerID)
		if !ok {
			return
		}
		path := pathOf(cloudapi.PathInstance, id)
		if strings.Count(path, "/") != 3 || !strings.HasPrefix(path, "/v1/instances/") || path == "/v1/instances/" {
			t.Errorf("%q becomes path %s", providerID, path)
		}
	})
}
