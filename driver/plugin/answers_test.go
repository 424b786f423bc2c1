package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
)

var someVM = driver.VM{ProviderID: "test:///m", NodeName: "m", State: "running", Addresses: []corev1.NodeAddress{
	{Type: corev1.NodeInternalIP, Address: "10.0.0.1"},
}}

// asked fails the test unless the driver got the request that the fleet has sent.
func asked(t *testing.T, wanted, got any) {
	t.Helper()
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("request (-sent +received):\n%s", diff)
	}
}

// answered fails the test unless the fleet got the answer that the driver has returned.
func answered(t *testing.T, wanted, got any, err error) {
	t.Helper()
	if diff := cmp.Diff(wanted, got); diff != "" || err != nil {
		t.Errorf("answer (-returned +received), %v:\n%s", err, diff)
	}
}

func TestRequestsAndAnswersOfADriver(t *testing.T) {
	d := &scripted{}
	client := connect(t, plugin.Served{Driver: d, Provider: "test"})
	ctx := t.Context()

	create := driver.CreateMachineRequest{Target: of("m"), UserData: []byte("boot")}
	created := driver.CreateMachineResponse{VM: someVM, LastKnownState: "note"}
	d.create = func(_ context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
		asked(t, create, req)
		return created, nil
	}
	got1, err := client.CreateMachine(ctx, create)
	answered(t, created, got1, err)

	initialize := driver.InitializeMachineRequest{Target: of("m")}
	initialized := driver.InitializeMachineResponse{VM: someVM}
	d.initialize = func(_ context.Context, req driver.InitializeMachineRequest) (driver.InitializeMachineResponse, error) {
		asked(t, initialize, req)
		return initialized, nil
	}
	got2, err := client.InitializeMachine(ctx, initialize)
	answered(t, initialized, got2, err)

	remove := driver.DeleteMachineRequest{Target: of("m")}
	for _, removed := range []driver.DeleteMachineResponse{{Gone: true, LastKnownState: "note"}, {Left: true}, {Owned: true}} {
		d.remove = func(_ context.Context, req driver.DeleteMachineRequest) (driver.DeleteMachineResponse, error) {
			asked(t, remove, req)
			return removed, nil
		}
		got3, err := client.DeleteMachine(ctx, remove)
		answered(t, removed, got3, err)
	}

	look := driver.GetMachineStatusRequest{Target: of("m")}
	looked := driver.GetMachineStatusResponse{VM: someVM, Left: true}
	d.status = func(_ context.Context, req driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
		asked(t, look, req)
		return looked, nil
	}
	got4, err := client.GetMachineStatus(ctx, look)
	answered(t, looked, got4, err)

	list := driver.ListMachinesRequest{Class: of("m").Class, Secret: of("m").Secret}
	listed := driver.ListMachinesResponse{Machines: map[string]string{"test:///a": "a", "test:///b": "b"}}
	d.list = func(_ context.Context, req driver.ListMachinesRequest) (driver.ListMachinesResponse, error) {
		asked(t, list, req)
		return listed, nil
	}
	got5, err := client.ListMachines(ctx, list)
	answered(t, listed, got5, err)

	volumes := driver.GetVolumeIDsRequest{Volumes: []*corev1.PersistentVolumeSpec{nil, {StorageClassName: "fast"}}}
	found := driver.GetVolumeIDsResponse{IDs: []string{"v"}}
	d.volumes = func(_ context.Context, req driver.GetVolumeIDsRequest) (driver.GetVolumeIDsResponse, error) {
		asked(t, volumes, req)
		return found, nil
	}
	got6, err := client.GetVolumeIDs(ctx, volumes)
	answered(t, found, got6, err)

	fields := driver.GetUnknownFieldsRequest{Class: of("m").Class}
	unknown := driver.GetUnknownFieldsResponse{Fields: []string{"a.b", "c[].d"}, Refused: true}
	d.fields = func(_ context.Context, req driver.GetUnknownFieldsRequest) (driver.GetUnknownFieldsResponse, error) {
		asked(t, fields, req)
		return unknown, nil
	}
	got7, err := client.GetUnknownFields(ctx, fields)
	answered(t, unknown, got7, err)
}

func TestRequestsAndAnswersOfASweeper(t *testing.T) {
	d := &sweeping{scripted: &scripted{}}
	client := connect(t, plugin.Served{Driver: d})
	sweeper, ok := driver.SweeperOf(client)
	if !ok {
		t.Fatal("the client of a driver with a Sweeper has none")
	}
	scope := driver.ScopeRequest{Class: of("m").Class, Secret: of("m").Secret, ControlCluster: "cluster-1"}
	d.scope = func(req driver.ScopeRequest) (string, error) {
		asked(t, scope, req)
		return "account-1", nil
	}
	text, err := sweeper.Scope(scope)
	answered(t, "account-1", text, err)

	page := driver.ListResourcesRequest{ScopeRequest: scope, Continue: "page-2"}
	disk := driver.Resource{Kind: driver.ResourceDisk, ID: "d", Namespace: "ns", Machine: "m", MachineUID: "uid"}
	listed := driver.ListResourcesResponse{
		Continue: "page-3", Items: []driver.Resource{disk, {Kind: driver.ResourceVM, ID: "v", NodeName: "n"}},
	}
	d.resources = func(_ context.Context, req driver.ListResourcesRequest) (driver.ListResourcesResponse, error) {
		asked(t, page, req)
		return listed, nil
	}
	got, err := sweeper.ListResources(t.Context(), page)
	answered(t, listed, got, err)

	remove := driver.DeleteResourceRequest{ScopeRequest: scope, Resource: disk}
	d.sweep = func(_ context.Context, req driver.DeleteResourceRequest) (driver.DeleteResourceResponse, error) {
		asked(t, remove, req)
		return driver.DeleteResourceResponse{Gone: true}, nil
	}
	gone, err := sweeper.DeleteResource(t.Context(), remove)
	answered(t, driver.DeleteResourceResponse{Gone: true}, gone, err)
}

func TestFailuresKeepCodeWaitAndCause(t *testing.T) {
	d := &scripted{}
	client := connect(t, plugin.Served{Driver: d})
	fails := func(failure error) error {
		d.status = func(context.Context, driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
			return driver.GetMachineStatusResponse{}, failure
		}
		_, err := statusOf(t, client, timeout)
		return err
	}
	for _, code := range driver.Codes()[1:] {
		err := fails(&driver.Error{
			Code: code, Op: driver.OpStatus, RetryAfter: 1500 * time.Millisecond, Pending: code%2 == 0, Throttled: code%3 == 0,
			Err: errors.New("because"),
		})
		typed, ok := errors.AsType[*driver.Error](err)
		if !ok || typed.Code != code || typed.Op != driver.OpStatus || typed.RetryAfter != 1500*time.Millisecond ||
			typed.Pending != (code%2 == 0) || typed.Throttled != (code%3 == 0) || !strings.HasSuffix(typed.Message(), "because") {
			t.Errorf("%v: got %v after %v", code, err, driver.RetryAfterOf(err))
		}
	}
	for name, c := range map[string]struct {
		failure error
		code    driver.Code
		after   time.Duration
		cause   string
	}{
		"no error of a driver": {errors.New("other"), driver.Unknown, 0, "other"},
		"wrapped":              {fmt.Errorf("outer: %w", driver.Errorf(driver.OpStatus, driver.Aborted, "inner")), driver.Aborted, 0, "inner"},
		"OK as an error":       {&driver.Error{Op: driver.OpStatus, Err: errors.New("x")}, driver.Unknown, 0, "x"},
		"a number that is new": {&driver.Error{Code: 99, Op: driver.OpStatus, Err: errors.New("x")}, driver.Unknown, 0, "x"},
		"another operation":    {driver.Errorf(driver.OpSweep, driver.Aborted, "x"), driver.Aborted, 0, "x"},
		"no cause":             {&driver.Error{Code: driver.Aborted, Op: driver.OpStatus}, driver.Aborted, 0, "get_machine_status: Aborted"},
		"a negative wait": {
			&driver.Error{Code: driver.Aborted, Op: driver.OpStatus, RetryAfter: -1, Err: errors.New("x")}, driver.Aborted, 0, "x",
		},
		"a wait of years": {
			&driver.Error{Code: driver.Aborted, Op: driver.OpStatus, RetryAfter: 1 << 60, Err: errors.New("x")}, driver.Aborted,
			driver.MaxRetryAfter, "x",
		},
		"no UTF-8": {driver.Errorf(driver.OpStatus, driver.Aborted, "a\xff"), driver.Aborted, 0, "a\uFFFD"},
	} {
		err := fails(c.failure)
		typed, ok := errors.AsType[*driver.Error](err)
		if !ok || typed.Code != c.code || typed.Op != driver.OpStatus || typed.RetryAfter != c.after || typed.Err.Error() != c.cause {
			t.Errorf("%s: got %v, cause %q after %v", name, err, typed.Err, driver.RetryAfterOf(err))
		}
	}
	if err := fails(driver.Errorf(driver.OpStatus, driver.Aborted, "%s", strings.Repeat("x", 1<<20))); driver.CodeOf(err) != driver.Aborted ||
		len(err.Error()) > 2<<10 {
		t.Errorf("a cause of 1 MiB: %d bytes, %v", len(err.Error()), driver.CodeOf(err))
	}
}

// The contract returns some answers together with an error.
func TestAnswersTogetherWithFailures(t *testing.T) {
	d := &scripted{}
	client := connect(t, plugin.Served{Driver: d})
	d.create = func(context.Context, driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
		return driver.CreateMachineResponse{LastKnownState: "note"}, driver.Errorf(driver.OpCreate, driver.ResourceExhausted, "full")
	}
	created, err := client.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: of("m")})
	if want(t, "create", err, driver.ResourceExhausted); created.LastKnownState != "note" {
		t.Errorf("create: %+v", created)
	}
	d.status = func(context.Context, driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
		return driver.GetMachineStatusResponse{VM: someVM}, driver.Errorf(driver.OpStatus, driver.Uninitialized, "not yet")
	}
	found, err := statusOf(t, client, timeout)
	if want(t, "status", err, driver.Uninitialized); cmp.Diff(someVM, found.VM) != "" {
		t.Errorf("status: %+v", found)
	}
	d.status = func(context.Context, driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
		return driver.GetMachineStatusResponse{Left: true}, driver.Errorf(driver.OpStatus, driver.NotFound, "another's")
	}
	found, err = statusOf(t, client, timeout)
	if want(t, "status", err, driver.NotFound); !found.Left {
		t.Errorf("status: %+v", found)
	}
}

func TestCapabilities(t *testing.T) {
	d := &scripted{initialize: func(context.Context, driver.InitializeMachineRequest) (driver.InitializeMachineResponse, error) {
		t.Error("a driver that never initializes was called")
		return driver.InitializeMachineResponse{}, nil
	}}
	client := connect(t, plugin.Served{Driver: d, NeverInitializes: true})
	_, err := client.InitializeMachine(t.Context(), driver.InitializeMachineRequest{Target: of("m")})
	want(t, "initialize", err, driver.Unimplemented)
	if _, ok := driver.SweeperOf(client); ok {
		t.Error("the client of a driver without Sweeper has one")
	}
	if _, ok := driver.SweeperOf(dial(t, socketIn(t))); ok {
		t.Error("a client that was never connected has a Sweeper")
	}
}

func TestDriversSeeOwnershipAndTrace(t *testing.T) {
	d := &scripted{}
	client := connect(t, plugin.Served{Driver: d})
	for name, sent := range map[string]*plugin.Ownership{
		"a slot":     {Replica: "fleet-0", Session: "fleet-0_abcde", Slot: 7, Epoch: 42},
		"the leader": {Replica: "fleet-0", Session: "fleet-0_abcde", Leader: true},
		"none":       nil,
	} {
		ctx := t.Context()
		if sent != nil {
			ctx = context.WithValue(ctx, ownerKey{}, *sent)
		}
		traceID := trace.TraceID{1, 2, 3}
		ctx = trace.ContextWithSpanContext(ctx,
			trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled}))
		d.list = func(ctx context.Context, _ driver.ListMachinesRequest) (driver.ListMachinesResponse, error) {
			got, ok := plugin.OwnershipFrom(ctx)
			if ok != (sent != nil) || ok && got != *sent {
				t.Errorf("%s: ownership %+v, %t", name, got, ok)
			}
			if share, ok := plugin.ShareFrom(ctx); !ok || share != sentShare {
				t.Errorf("%s: share %v, %t", name, share, ok)
			}
			if own := time.Now(); driver.Now(ctx, own).Sub(own).Round(time.Minute) != sentAhead {
				t.Errorf("%s: the time is %s, own clock %s", name, driver.Now(ctx, own), own)
			}
			if span := trace.SpanContextFromContext(ctx); span.TraceID() != traceID || !span.IsRemote() || !span.IsSampled() {
				t.Errorf("%s: span %+v", name, span)
			}
			if _, bounded := ctx.Deadline(); !bounded {
				t.Errorf("%s: no deadline", name)
			}
			return driver.ListMachinesResponse{}, nil
		}
		if _, err := client.ListMachines(ctx, driver.ListMachinesRequest{Class: of("m").Class}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnswersHaveNoSecrets(t *testing.T) {
	d := &scripted{}
	socket := socketIn(t)
	serve(t, socket, plugin.Served{Driver: d})
	client := dial(t, socket) // not behind the fleet's own driver.Redacted
	ready(t, client)
	d.create = func(_ context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
		return driver.CreateMachineResponse{LastKnownState: string(req.Secret["password"])}, driver.Errorf(driver.OpCreate,
			driver.Unauthenticated, "rejected %s", req.Secret["password"])
	}
	created, err := client.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: of("m")})
	want(t, "create", err, driver.Unauthenticated)
	d.status = func(_ context.Context, req driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
		panic("rejected " + string(req.Secret["password"]))
	}
	_, err2 := statusOf(t, client, timeout)
	want(t, "a panic", err2, driver.Unknown)
	for _, text := range []string{created.LastKnownState, err.Error(), err2.Error()} {
		if strings.Contains(text, password) || !strings.Contains(text, "[redacted]") {
			t.Errorf("want the secret to be redacted, got %q", text)
		}
	}
}

func TestLongLists(t *testing.T) {
	d := &sweeping{scripted: &scripted{}}
	client := connect(t, plugin.Served{Driver: d})
	listed := driver.ListMachinesResponse{Machines: map[string]string{}}
	for i := range driver.MaxListed {
		listed.Machines[fmt.Sprintf("test:///%0200d", i)] = fmt.Sprintf("machine-%d", i)
	}
	d.list = func(context.Context, driver.ListMachinesRequest) (driver.ListMachinesResponse, error) {
		return listed, nil
	}
	got, err := client.ListMachines(t.Context(), driver.ListMachinesRequest{Class: of("m").Class})
	answered(t, len(listed.Machines), len(got.Machines), err)
	listed.Machines["test:///one-more"] = "m"
	_, err = client.ListMachines(t.Context(), driver.ListMachinesRequest{Class: of("m").Class})
	want(t, "more than MaxListed", err, driver.Internal)
	d.list = func(context.Context, driver.ListMachinesRequest) (driver.ListMachinesResponse, error) {
		return driver.ListMachinesResponse{}, driver.Errorf(driver.OpList, driver.Unavailable, "page 2 of the cloud")
	}
	_, err = client.ListMachines(t.Context(), driver.ListMachinesRequest{Class: of("m").Class})
	want(t, "half a list", err, driver.Unavailable)

	page := driver.ListResourcesResponse{Continue: strings.Repeat("c", driver.MaxContinue)}
	for range driver.MaxResources {
		page.Items = append(page.Items, driver.Resource{
			Kind: driver.ResourceVM, ID: strings.Repeat("i", driver.MaxProviderID), Namespace: strings.Repeat("n", 63),
			Machine: strings.Repeat("m", 253), NodeName: strings.Repeat("m", 253), MachineUID: "u",
		})
	}
	d.resources = func(context.Context, driver.ListResourcesRequest) (driver.ListResourcesResponse, error) {
		return page, nil
	}
	resources, err := client.ListResources(t.Context(), driver.ListResourcesRequest{ScopeRequest: driver.ScopeRequest{Class: of("m").Class}})
	answered(t, page, resources, err)

	const volumes = 1201
	calls := 0
	d.volumes = func(_ context.Context, req driver.GetVolumeIDsRequest) (resp driver.GetVolumeIDsResponse, err error) {
		calls++
		for _, v := range req.Volumes {
			resp.IDs = append(resp.IDs, v.StorageClassName)
		}
		return resp, nil
	}
	request := driver.GetVolumeIDsRequest{}
	wanted := []string{}
	for i := range volumes {
		wanted = append(wanted, fmt.Sprint(i))
		request.Volumes = append(request.Volumes, &corev1.PersistentVolumeSpec{StorageClassName: fmt.Sprint(i)})
	}
	ids, err := client.GetVolumeIDs(t.Context(), request)
	if answered(t, wanted, ids.IDs, err); calls != 3 {
		t.Errorf("%d calls for %d volumes, want 3", calls, volumes)
	}
}

func TestTheLargestRequestIsAccepted(t *testing.T) {
	d := &scripted{create: func(_ context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
		return driver.CreateMachineResponse{LastKnownState: fmt.Sprint(len(req.Class.ProviderSpec.Raw))}, nil
	}}
	client := connect(t, plugin.Served{Driver: d})
	const object, secret = 1536 << 10, 1 << 20 // what etcd and the API server accept
	target := of("m")
	target.Machine.Annotations = map[string]string{"long": strings.Repeat("a", object)}
	target.Machine.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "not sent"}}
	target.Class.ProviderSpec.Raw = []byte(strings.Repeat("s", object))
	target.Secret = map[string][]byte{"key": make([]byte, secret)}
	got, err := client.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: target, UserData: make([]byte, driver.MaxUserData)})
	answered(t, driver.CreateMachineResponse{LastKnownState: fmt.Sprint(object)}, got, err)
	if target.Machine.ManagedFields == nil {
		t.Error("the request was changed")
	}
	target.Class.ProviderSpec.Raw = make([]byte, 9<<20)
	_, err = client.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: target})
	want(t, "a request that is too large", err, driver.Unknown)
}

// A share that is missing, as from an earlier version, or not from 0 to 1 is not used.
func TestSharesThatAreNone(t *testing.T) {
	for text, want := range map[string]bool{
		"0": true, "1": true, "0.5": true, "": false, "-0.1": false, "1.1": false, "NaN": false, "Inf": false, "much": false,
	} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("mcf-share", text))
		if share, ok := plugin.ShareFrom(ctx); ok != want || share < 0 || share > 1 {
			t.Errorf("%q: %v, %t; want %t", text, share, ok, want)
		}
	}
	if _, ok := plugin.ShareFrom(t.Context()); ok {
		t.Error("a call without metadata has a share")
	}
}
