package cloudsim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// sendRaw sends a body unchanged.
func (b *bubble) sendRaw(method, path, body string) (status int, header http.Header, answer []byte) {
	b.t.Helper()
	return b.send(b.t.Context(), method, path, json.RawMessage(body))
}

func TestClientToken(t *testing.T) {
	inBubble(t, cloudapi.Settings{}, func(b *bubble) {
		req := cloudapi.CreateInstanceRequest{Name: "a", ClientToken: "t", UserData: []byte("x")}
		first := b.create(req)
		if again := b.create(req); again.ID != first.ID {
			t.Errorf("the same create returned %s, want %s", again.ID, first.ID)
		}
		req.Zone = cloudapi.DefaultZone // An explicit default is no other parameter.
		if again := b.create(req); again.ID != first.ID {
			t.Errorf("the same create with its defaults returned %s, want %s", again.ID, first.ID)
		}
		req.UserData = []byte("y")
		if code := b.refused(http.MethodPost, cloudapi.PathInstances, req); code != cloudapi.CodeIdempotencyMismatch {
			t.Errorf("other parameters: %s, want %s", code, cloudapi.CodeIdempotencyMismatch)
		}
		req.UserData = []byte("x")
		b.remove(first.ID)
		if again := b.create(req); again.ID != first.ID || again.State != cloudapi.StateTerminated {
			t.Errorf("after its end: %s %s, want %s terminated", again.ID, again.State, first.ID)
		}
		b.pass(time.Hour)
		if again := b.create(req); again.ID == first.ID {
			t.Error("the token is still known after an hour")
		}
		without := cloudapi.CreateInstanceRequest{Name: "b"}
		if one, other := b.create(without), b.create(without); one.ID == other.ID {
			t.Error("two creates without a token created one VM")
		}
	})
}

// A create takes effect whether or not the caller waits for the answer.
func TestCallTakesEffectAfterCallerDisconnects(t *testing.T) {
	inBubble(t, cloudapi.Settings{Latency: map[cloudapi.Operation]cloudapi.Latency{cloudapi.OpCreateInstance: {Mean: seconds(1)}}},
		func(b *bubble) {
			ctx, cancel := context.WithCancel(b.t.Context())
			cancel()
			b.send(ctx, http.MethodPost, cloudapi.PathInstances, cloudapi.CreateInstanceRequest{Name: "a"})
			if all := ok[cloudapi.InstanceList](b, http.MethodGet, cloudapi.PathAllInstances, nil); len(all.Items) != 1 {
				t.Errorf("%d VMs, want 1", len(all.Items))
			}
		})
}

func TestFaults(t *testing.T) {
	for kind, want := range map[cloudapi.FaultKind]struct {
		status  int
		code    cloudapi.ErrorCode
		created int
	}{
		cloudapi.FaultThrottled:     {http.StatusTooManyRequests, cloudapi.CodeThrottled, 0},
		cloudapi.FaultQuota:         {http.StatusForbidden, cloudapi.CodeQuotaExceeded, 0},
		cloudapi.FaultNoCapacity:    {http.StatusServiceUnavailable, cloudapi.CodeNoCapacity, 0},
		cloudapi.FaultInternal:      {http.StatusInternalServerError, cloudapi.CodeInternal, 0},
		cloudapi.FaultUnavailable:   {http.StatusServiceUnavailable, cloudapi.CodeUnavailable, 0},
		cloudapi.FaultUnauthorized:  {http.StatusUnauthorized, cloudapi.CodeUnauthorized, 0},
		cloudapi.FaultForbidden:     {http.StatusForbidden, cloudapi.CodeForbidden, 0},
		cloudapi.FaultTimeoutBefore: {0, cloudapi.CallTimeout, 0},
		cloudapi.FaultTimeoutAfter:  {0, cloudapi.CallTimeout, 1},
	} {
		t.Run(string(kind), func(t *testing.T) {
			inBubble(t, cloudapi.Settings{Faults: []cloudapi.Fault{
				{Kind: cloudapi.FaultInternal, Rate: 1, Operations: []cloudapi.Operation{cloudapi.OpDeleteInstance}},
				{Kind: cloudapi.FaultInternal, Rate: 1, Zones: []string{"sim-1c"}},
				{Kind: kind, Rate: 1, RetryAfter: milliseconds(1500), Hold: seconds(5), Zones: []string{"sim-1b"}},
			}}, func(b *bubble) {
				began := time.Now()
				status, header, answer := b.send(b.t.Context(), http.MethodPost,
					cloudapi.PathInstances, cloudapi.CreateInstanceRequest{Name: "a", Zone: "sim-1b"})
				if status != want.status {
					t.Fatalf("status %d %s, want %d", status, answer, want.status)
				}
				calls := b.calls()
				if last := calls[len(calls)-1]; last.Status != want.status || last.Error != string(want.code) || last.Changed != (want.created > 0) {
					t.Errorf("call log: %+v", last)
				}
				if status == 0 {
					if held := time.Since(began); held != 5*time.Second {
						t.Errorf("the caller was held for %v, want 5s", held)
					}
				} else {
					var body cloudapi.ErrorBody
					if err := json.Unmarshal(answer, &body); err != nil || body.Code != want.code {
						t.Errorf("answer %s, want %s", answer, want.code)
					}
					if throttled := kind == cloudapi.FaultThrottled; throttled != (body.RetryAfterSeconds == 1.5) ||
						throttled != (header.Get("Retry-After") == "2") {
						t.Errorf("retry after %v, header %q", body.RetryAfterSeconds, header.Get("Retry-After"))
					}
				}
				if all := ok[cloudapi.InstanceList](b, http.MethodGet, cloudapi.PathAllInstances, nil); len(all.Items) != want.created {
					t.Errorf("%d VMs, want %d", len(all.Items), want.created)
				}
				b.create(cloudapi.CreateInstanceRequest{Name: "elsewhere"})
			})
		})
	}
}

func TestRefusals(t *testing.T) {
	settings := cloudapi.Settings{Quotas: cloudapi.Quotas{
		InstancesByRegion: map[string]int{"sim-2": 1}, InstancesByType: map[string]int{"gpu-8": 1},
	}}
	inBubble(t, settings, func(b *bubble) {
		b.create(cloudapi.CreateInstanceRequest{Name: "a", Zone: "sim-2a"})
		gpu := b.create(cloudapi.CreateInstanceRequest{Name: "a", InstanceType: "gpu-8"})
		for name, c := range map[string]struct {
			req  cloudapi.CreateInstanceRequest
			want cloudapi.ErrorCode
		}{
			"no name":         {cloudapi.CreateInstanceRequest{}, cloudapi.CodeInvalidParameter},
			"bad name":        {cloudapi.CreateInstanceRequest{Name: "A_b"}, cloudapi.CodeInvalidParameter},
			"no such region":  {cloudapi.CreateInstanceRequest{Name: "a", Region: "moon"}, cloudapi.CodeInvalidParameter},
			"zone elsewhere":  {cloudapi.CreateInstanceRequest{Name: "a", Region: "sim-2", Zone: "sim-1a"}, cloudapi.CodeInvalidParameter},
			"no such type":    {cloudapi.CreateInstanceRequest{Name: "a", InstanceType: "tiny"}, cloudapi.CodeInvalidParameter},
			"no such image":   {cloudapi.CreateInstanceRequest{Name: "a", Image: "dos"}, cloudapi.CodeInvalidParameter},
			"no such network": {cloudapi.CreateInstanceRequest{Name: "a", Network: "token-ring"}, cloudapi.CodeInvalidParameter},
			"no such boot":    {cloudapi.CreateInstanceRequest{Name: "a", Boot: cloudapi.BootKubelet}, cloudapi.CodeInvalidParameter},
			"empty volume": {
				cloudapi.CreateInstanceRequest{Name: "a", DataVolumes: []cloudapi.DataVolume{{Name: "v"}}}, cloudapi.CodeInvalidParameter,
			},
			"region is full": {cloudapi.CreateInstanceRequest{Name: "a", Region: "sim-2"}, cloudapi.CodeQuotaExceeded},
			"type used up":   {cloudapi.CreateInstanceRequest{Name: "a", InstanceType: "gpu-8"}, cloudapi.CodeQuotaExceeded},
		} {
			if code := b.refused(http.MethodPost, cloudapi.PathInstances, c.req); code != c.want {
				t.Errorf("%s: %s, want %s", name, code, c.want)
			}
		}
		b.create(cloudapi.CreateInstanceRequest{Name: "x"}) // A name of one character is valid.
		b.remove(gpu.ID)
		b.create(cloudapi.CreateInstanceRequest{Name: "a", InstanceType: "gpu-8"})
		for _, c := range []struct{ method, path string }{{http.MethodGet, path("i-none")}, {http.MethodDelete, path("i-none")}} {
			if code := b.refused(c.method, c.path, nil); code != cloudapi.CodeNotFound {
				t.Errorf("%s: %s, want %s", c.method, code, cloudapi.CodeNotFound)
			}
		}
		if status, _, answer := b.sendRaw(http.MethodPost, cloudapi.PathInstances,
			`{"name": "a", "colour": "red"}`); status != http.StatusBadRequest {
			t.Errorf("unknown parameter: %d %s, want 400", status, answer)
		}
		b.patch(`{"credentials": "secret"}`)
		if code := b.refused(http.MethodGet, cloudapi.PathInstances, nil); code != cloudapi.CodeUnauthorized {
			t.Errorf("without credentials: %s, want %s", code, cloudapi.CodeUnauthorized)
		}
	})
}

// Pages show each VM that exists throughout once, also when others are created and deleted in
// between.
func TestPagesAreStable(t *testing.T) {
	inBubble(t, cloudapi.Settings{}, func(b *bubble) {
		var ids []string
		for i := range 25 {
			ids = append(ids, b.create(cloudapi.CreateInstanceRequest{
				Name: fmt.Sprintf("vm-%d", i), Tags: map[string]string{"half": fmt.Sprint(i % 2), "all": ""},
			}).ID)
		}
		pages := func(query url.Values, between func()) (seen []string) {
			for {
				list := ok[cloudapi.InstanceList](b, http.MethodGet, cloudapi.PathInstances+"?"+query.Encode(), nil)
				for _, i := range list.Items {
					seen = append(seen, i.ID)
				}
				if list.NextPageToken == "" {
					return seen
				}
				query.Set(cloudapi.QueryPageToken, list.NextPageToken)
				between()
			}
		}
		seen := pages(url.Values{cloudapi.QueryPageSize: {"10"}}, func() {
			b.remove(ids[9]) // the last one of the first page
			b.remove(ids[15])
			b.create(cloudapi.CreateInstanceRequest{Name: "late"})
		})
		var stayed []string
		for i, id := range ids {
			if i != 15 {
				stayed = append(stayed, id)
			}
		}
		if diff := cmp.Diff(stayed, seen[:len(stayed)]); diff != "" {
			t.Errorf("pages (-want +got):\n%s", diff)
		}
		odd := pages(url.Values{cloudapi.QueryPageSize: {"5"}, cloudapi.QueryTag: {"half=1", "all"}}, func() {})
		if want := 10; len(odd) != want || !slices.IsSorted(odd) {
			t.Errorf("%d VMs with the tags, want %d in order: %v", len(odd), want, odd)
		}
		ended := pages(url.Values{cloudapi.QueryState: {"terminated", "stopping"}}, func() {})
		if diff := cmp.Diff([]string{ids[9], ids[15]}, ended); diff != "" {
			t.Errorf("ended VMs (-want +got):\n%s", diff)
		}
		if named := pages(url.Values{cloudapi.QueryName: {"vm-3"}}, func() {}); len(named) != 1 {
			t.Errorf("%d VMs with the name, want 1", len(named))
		}
		for _, bad := range []string{"pageSize=0", "pageSize=1001", "pageSize=x", "pageToken=%21"} {
			if code := b.refused(http.MethodGet, cloudapi.PathInstances+"?"+bad, nil); code != cloudapi.CodeInvalidParameter {
				t.Errorf("%s: %s, want %s", bad, code, cloudapi.CodeInvalidParameter)
			}
		}
	})
}

func TestModify(t *testing.T) {
	inBubble(t, cloudapi.Settings{}, func(b *bubble) {
		vm := b.create(cloudapi.CreateInstanceRequest{Name: "a"})
		for range 2 {
			got := ok[cloudapi.Instance](b, http.MethodPatch, path(vm.ID)+"/attributes", cloudapi.InstanceAttributes{SourceDestCheck: new(false)})
			if got.SourceDestCheck {
				t.Error("the attribute was not changed")
			}
		}
		b.remove(vm.ID)
		if code := b.refused(http.MethodPatch, path(vm.ID)+"/attributes", cloudapi.InstanceAttributes{}); code != cloudapi.CodeConflict {
			t.Errorf("after its end: %s, want %s", code, cloudapi.CodeConflict)
		}
	})
}

func TestVolumes(t *testing.T) {
	inBubble(t, cloudapi.Settings{}, func(b *bubble) {
		v := ok[cloudapi.Volume](b, http.MethodPost, cloudapi.PathVolumes, cloudapi.CreateVolumeRequest{Name: "v", Zone: "sim-2b", SizeGiB: 1})
		want := cloudapi.Volume{ID: v.ID, Name: "v", Region: "sim-2", Zone: "sim-2b", SizeGiB: 1}
		one := cloudapi.PathVolumes + "/" + v.ID
		if diff := cmp.Diff(want, ok[cloudapi.Volume](b, http.MethodGet, one, nil)); diff != "" {
			t.Errorf("volume (-want +got):\n%s", diff)
		}
		vm := b.create(cloudapi.CreateInstanceRequest{Name: "a", DataVolumes: []cloudapi.DataVolume{{Name: "data", SizeGiB: 2}}})
		there := b.create(cloudapi.CreateInstanceRequest{Name: "there", Zone: "sim-2b"})
		for _, c := range []struct {
			method string
			vm     string
			want   cloudapi.ErrorCode // "" is success
			at     string
		}{
			{http.MethodPut, "i-none", cloudapi.CodeNotFound, ""},
			{http.MethodPut, vm.ID, cloudapi.CodeInvalidParameter, ""},
			{http.MethodPut, there.ID, "", there.ID},
			{http.MethodPut, there.ID, "", there.ID},
			{http.MethodPut, vm.ID, cloudapi.CodeConflict, there.ID},
			{http.MethodDelete, vm.ID, "", there.ID},
			{http.MethodDelete, there.ID, "", ""},
			{http.MethodPut, there.ID, "", there.ID},
			{http.MethodDelete, "", "", ""},
			{http.MethodDelete, "", "", ""},
			{http.MethodPut, there.ID, "", there.ID},
		} {
			to := cloudapi.AttachVolumeRequest{InstanceID: c.vm}
			attachment := one + "/attachment"
			if c.method == http.MethodDelete {
				attachment += "?instanceID=" + c.vm
			}
			if c.want != "" {
				if code := b.refused(c.method, attachment, to); code != c.want {
					t.Errorf("%s %s: %s, want %s", c.method, c.vm, code, c.want)
				}
			} else if got := ok[cloudapi.Volume](b, c.method, attachment, to); got.AttachedTo != c.at {
				t.Errorf("%s %s: attached to %q, want %q", c.method, c.vm, got.AttachedTo, c.at)
			}
		}
		b.remove(there.ID)
		synctest.Wait()
		if got := ok[cloudapi.Volume](b, http.MethodGet, one, nil); got.AttachedTo != "" {
			t.Errorf("after the end of the VM it is attached to %q", got.AttachedTo)
		}
		if code := b.refused(http.MethodPut,
			one+"/attachment", cloudapi.AttachVolumeRequest{InstanceID: there.ID}); code != cloudapi.CodeConflict {
			t.Errorf("attached to a VM that has ended: %s, want %s", code, cloudapi.CodeConflict)
		}
		if code := b.refused(http.MethodDelete, cloudapi.PathVolumes+"/"+vm.VolumeIDs[0]+"/attachment", nil); code != cloudapi.CodeConflict {
			t.Errorf("detach of a volume that was created with its VM: %s, want %s", code, cloudapi.CodeConflict)
		}
		if code := b.refused(http.MethodDelete, cloudapi.PathVolumes+"/"+vm.VolumeIDs[0], nil); code != cloudapi.CodeConflict {
			t.Errorf("delete of an attached volume: %s, want %s", code, cloudapi.CodeConflict)
		}
		ok[cloudapi.Volume](b, http.MethodDelete, one, nil)
		if code := b.refused(http.MethodGet, one, nil); code != cloudapi.CodeNotFound {
			t.Errorf("after the delete: %s, want %s", code, cloudapi.CodeNotFound)
		}
	})
}

func TestCatalog(t *testing.T) {
	inBubble(t, cloudapi.Settings{}, func(b *bubble) {
		if regions := ok[cloudapi.RegionList](b, http.MethodGet, cloudapi.PathRegions, nil); len(regions.Items) < 2 {
			t.Errorf("regions: %+v", regions)
		}
		if sizes := ok[cloudapi.InstanceTypeList](b, http.MethodGet, cloudapi.PathInstanceTypes, nil); len(sizes.Items) == 0 {
			t.Error("no instance types")
		}
		if images := ok[cloudapi.ImageList](b, http.MethodGet, cloudapi.PathImages, nil); len(images.Items) == 0 {
			t.Error("no images")
		}
		if networks := ok[cloudapi.NetworkList](b, http.MethodGet, cloudapi.PathNetworks, nil); len(networks.Items) == 0 {
			t.Error("no networks")
		}
	})
}

// A call that fails without effect is logged with its object, too.
func TestCallLogOfFaults(t *testing.T) {
	inBubble(t, cloudapi.Settings{}, func(b *bubble) {
		vm := b.create(cloudapi.CreateInstanceRequest{Name: "a", ClientToken: "t"})
		b.patch(`{"faults":[{"kind":"internal","rate":1}]}`)
		b.refused(http.MethodPost, cloudapi.PathInstances, cloudapi.CreateInstanceRequest{Name: "b", ClientToken: "u"})
		b.refused(http.MethodDelete, path(vm.ID), nil)
		want := []cloudapi.Call{
			{Caller: "bubble", Operation: cloudapi.OpCreateInstance, Token: "u", Machine: "b", Status: 500, Error: string(cloudapi.CodeInternal)},
			{
				Caller: "bubble", Operation: cloudapi.OpDeleteInstance, Machine: "a", MachineUID: "t", Instance: vm.ID, Status: 500,
				Error: string(cloudapi.CodeInternal),
			},
		}
		if diff := cmp.Diff(want, b.calls()[1:], cmpopts.IgnoreFields(cloudapi.Call{}, "ID", "Start", "End")); diff != "" {
			t.Errorf("call log (-want +got):\n%s", diff)
		}
	})
}

// Every call is one line; those of its operator are not logged.
func TestCallLog(t *testing.T) {
	inBubble(t, cloudapi.Settings{Latency: map[cloudapi.Operation]cloudapi.Latency{cloudapi.OpCreateInstance: {Mean: seconds(1)}}},
		func(b *bubble) {
			began := time.Now()
			req := cloudapi.CreateInstanceRequest{Name: "a", ClientToken: "t"}
			vm := b.create(req)
			b.create(req)
			b.patch(`{}`)
			b.remove(vm.ID)
			b.remove(vm.ID)
			b.refused(http.MethodGet, path("i-none"), nil)
			b.refused(http.MethodPost, cloudapi.PathInstances, cloudapi.CreateInstanceRequest{Name: "B"})
			common := cloudapi.Call{Caller: "bubble", Status: 200, Machine: "a", MachineUID: "t", Instance: vm.ID}
			call := func(op cloudapi.Operation, change func(c *cloudapi.Call)) cloudapi.Call {
				c := common
				c.Operation = op
				change(&c)
				return c
			}
			want := []cloudapi.Call{
				call(cloudapi.OpCreateInstance, func(c *cloudapi.Call) { c.Token, c.Changed = "t", true }),
				call(cloudapi.OpCreateInstance, func(c *cloudapi.Call) { c.Token = "t" }),
				call(cloudapi.OpDeleteInstance, func(c *cloudapi.Call) { c.Changed = true }),
				call(cloudapi.OpDeleteInstance, func(*cloudapi.Call) {}),
				call(cloudapi.OpGetInstance, func(c *cloudapi.Call) {
					c.Machine, c.MachineUID, c.Instance, c.Status, c.Error = "", "", "i-none", 404, string(cloudapi.CodeNotFound)
				}),
				call(cloudapi.OpCreateInstance, func(c *cloudapi.Call) {
					c.Machine, c.MachineUID, c.Instance, c.Status, c.Error = "B", "", "", 400, string(cloudapi.CodeInvalidParameter)
				}),
			}
			got := b.calls()
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(cloudapi.Call{}, "ID", "Start", "End")); diff != "" {
				t.Errorf("call log (-want +got):\n%s", diff)
			}
			if first := got[0]; !first.Start.Equal(began) || !first.End.Equal(began.Add(time.Second)) || first.ID == got[1].ID {
				t.Errorf("first call: %+v; want it to begin at %v and take 1s", first, began)
			}
		})
}

// The VM of another cloud boots under the provider ID of that cloud, once for each token, in spite
// of quotas and faults, and no call is logged. It ends by an action.
func TestVMOfAnotherCloud(t *testing.T) {
	settings := cloudapi.Settings{
		Quotas: cloudapi.Quotas{InstancesByType: map[string]int{cloudapi.DefaultInstanceType: 0}},
		Faults: []cloudapi.Fault{{Kind: cloudapi.FaultInternal, Rate: 1}},
	}
	inBubble(t, settings, func(b *bubble) {
		const providerID = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m"
		req := cloudapi.HostedInstance{CreateInstanceRequest: cloudapi.CreateInstanceRequest{Name: "m", ClientToken: "t"}, ProviderID: providerID}
		host := func() cloudapi.Instance {
			return ok[cloudapi.Instance](b, http.MethodPost, cloudapi.PathAllInstances, req)
		}
		created := host()
		if again := host(); again.ID != created.ID || created.ProviderID != providerID {
			t.Errorf("%+v, and again %s; want one VM with the provider ID", created, again.ID)
		}
		b.pass(time.Second)
		if on := b.host.on[created.ID]; on.ProviderID != providerID || on.Name != "m" {
			t.Errorf("the host runs %+v", on)
		}
		b.act(created.ID, cloudapi.ActionDie)
		if _, on := b.host.on[created.ID]; on {
			t.Error("it runs after its end")
		}
		if calls := b.calls(); len(calls) > 0 {
			t.Errorf("the call log has %+v", calls)
		}
		for _, wrong := range []cloudapi.HostedInstance{
			{CreateInstanceRequest: req.CreateInstanceRequest},
			{CreateInstanceRequest: cloudapi.CreateInstanceRequest{Name: "m"}, ProviderID: providerID},
			{CreateInstanceRequest: cloudapi.CreateInstanceRequest{Name: "M", ClientToken: "u"}, ProviderID: providerID},
		} {
			if code := b.refused(http.MethodPost, cloudapi.PathAllInstances, wrong); code != cloudapi.CodeInvalidParameter {
				t.Errorf("%+v: %s", wrong, code)
			}
		}
	})
}
