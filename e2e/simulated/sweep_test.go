package simulated

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// scope is a request for the namespace ns in the control cluster cc.
func scope(secret map[string][]byte) driver.ScopeRequest {
	return driver.ScopeRequest{
		Class: &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}, Secret: secret, ControlCluster: "cc",
	}
}

// swept returns the tags of what is created for a machine, with changes.
func swept(changes ...string) map[string]string {
	tags := map[string]string{TagCluster: "ns", TagMachine: "a", TagMachineUID: "uid-a", TagControlCluster: "cc"}
	for _, change := range changes {
		if key, value, set := strings.Cut(change, "="); set {
			tags[key] = value
		} else {
			delete(tags, key)
		}
	}
	return tags
}

func TestScope(t *testing.T) {
	d, err := New(Config{Endpoints: []string{"https://Cloud.example/v2/", unserved}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		secret map[string][]byte
		want   string
		code   driver.Code
	}{
		"no Secret": {nil, "https://cloud.example:443/v2", driver.OK},
		"the default, by its name": {
			map[string][]byte{SecretEndpoint: []byte("https://cloud.example:443/v2\n")}, "https://cloud.example:443/v2", driver.OK,
		},
		"an empty token": {map[string][]byte{SecretToken: []byte("\n")}, "https://cloud.example:443/v2", driver.OK},
		"a token": {
			map[string][]byte{SecretToken: []byte("s3cret")}, "https://cloud.example:443/v2#1ec1c26b50d5d3c5", driver.OK,
		},
		"a token and a line": {
			map[string][]byte{SecretToken: []byte("s3cret\n")}, "https://cloud.example:443/v2#1ec1c26b50d5d3c5", driver.OK,
		},
		"another endpoint":                {map[string][]byte{SecretEndpoint: []byte(unserved)}, unserved, driver.OK},
		"an endpoint that is not allowed": {map[string][]byte{SecretEndpoint: []byte("https://elsewhere")}, "", driver.InvalidArgument},
	} {
		if got, err := d.Scope(scope(c.secret)); got != c.want || driver.CodeOf(err) != c.code {
			t.Errorf("%s: %q, %v; want %q, %v", name, got, err, c.want, c.code)
		}
	}
}

func TestListResources(t *testing.T) {
	left := func(id string, kind cloudapi.LeftoverKind, changes ...string) cloudapi.Leftover {
		return cloudapi.Leftover{ID: id, Kind: kind, Tags: swept(changes...)}
	}
	tagged := func(changes ...string) cloudapi.Instance {
		return lie(func(v *cloudapi.Instance) { v.Tags = swept(changes...) })
	}
	d, cloud := against(t,
		answer{http.StatusOK, nil, cloudapi.InstanceList{
			Items: []cloudapi.Instance{tagged(), tagged(TagMachine), tagged(TagMachineUID), tagged(TagMachineUID + "=")}, NextPageToken: "p2",
		}},
		answer{http.StatusOK, nil, cloudapi.InstanceList{}},
		answer{http.StatusOK, nil, cloudapi.LeftoverList{Items: []cloudapi.Leftover{
			left("nic-1", cloudapi.LeftoverNetworkInterface), left("disk-1", cloudapi.LeftoverDisk), left("new-1", "bucket"),
			left("disk-2", cloudapi.LeftoverDisk, TagMachineUID),
		}, NextPageToken: "p4"}},
		answer{http.StatusOK, nil, cloudapi.LeftoverList{}},
	)
	of := func(kind driver.ResourceKind, id, node string) driver.Resource {
		return driver.Resource{Kind: kind, ID: id, Namespace: "ns", Machine: "a", MachineUID: "uid-a", NodeName: node}
	}
	request := func(path, page, states string) string {
		query := "pageSize=500" + page + states + "&tag=cluster%3Dns&tag=control-cluster%3Dcc"
		return "GET " + path + "?" + query
	}
	const alive = "&state=pending&state=running"
	token := ""
	for at, want := range []struct {
		page    driver.ListResourcesResponse
		request string
	}{
		{
			driver.ListResourcesResponse{Items: []driver.Resource{of(driver.ResourceVM, "simulated:///r/z/i-1", "a")}, Continue: "vms:p2"},
			request(cloudapi.PathInstances, "", alive),
		},
		{driver.ListResourcesResponse{Continue: "leftovers:"}, request(cloudapi.PathInstances, "&pageToken=p2", alive)},
		{driver.ListResourcesResponse{
			Items:    []driver.Resource{of(driver.ResourceNetworkInterface, "nic-1", ""), of(driver.ResourceDisk, "disk-1", "")},
			Continue: "leftovers:p4",
		}, request(cloudapi.PathLeftovers, "", "")},
		{driver.ListResourcesResponse{}, request(cloudapi.PathLeftovers, "&pageToken=p4", "")},
	} {
		got, err := d.ListResources(t.Context(), driver.ListResourcesRequest{ScopeRequest: scope(nil), Continue: token})
		if diff := cmp.Diff(want.page, got); err != nil || diff != "" {
			t.Errorf("page %d: %v (-want +got):\n%s", at+1, err, diff)
		}
		if got := cloud.requests[len(cloud.requests)-1]; got != want.request {
			t.Errorf("page %d: requested %s\nwant %s", at+1, got, want.request)
		}
		token = got.Continue
	}
}

func TestFalsePagesOfResourcesAreRejected(t *testing.T) {
	disk := func(change func(*cloudapi.Leftover)) cloudapi.LeftoverList {
		l := cloudapi.Leftover{ID: "disk-1", Kind: cloudapi.LeftoverDisk, Tags: swept()}
		change(&l)
		return cloudapi.LeftoverList{Items: []cloudapi.Leftover{l}}
	}
	page := func(change func(*cloudapi.Instance)) cloudapi.InstanceList {
		return cloudapi.InstanceList{Items: []cloudapi.Instance{lie(func(v *cloudapi.Instance) { v.Tags = swept(); change(v) })}}
	}
	const vms, leftovers = "vms:p", "leftovers:p"
	for name, c := range map[string]struct {
		token string
		body  any
	}{
		"VMs of another namespace":       {vms, page(func(v *cloudapi.Instance) { v.Tags[TagCluster] = "other" })},
		"VMs of another control cluster": {vms, page(func(v *cloudapi.Instance) { v.Tags[TagControlCluster] = "other" })},
		"VMs without ID":                 {vms, page(func(v *cloudapi.Instance) { v.ID = "" })},
		"VMs that follow themselves":     {vms, cloudapi.InstanceList{NextPageToken: "p"}},
		"too many VMs": {
			vms, cloudapi.InstanceList{Items: slices.Repeat(page(func(*cloudapi.Instance) {}).Items, driver.MaxResources+1)},
		},
		"VMs that are text":                 {vms, `{"items": "leaked"}`},
		"left-overs of another namespace":   {leftovers, disk(func(l *cloudapi.Leftover) { l.Tags[TagCluster] = "other" })},
		"left-overs of another cluster":     {leftovers, disk(func(l *cloudapi.Leftover) { l.Tags[TagControlCluster] = "other" })},
		"left-overs without ID":             {leftovers, disk(func(l *cloudapi.Leftover) { l.ID = "" })},
		"left-overs with a path as ID":      {leftovers, disk(func(l *cloudapi.Leftover) { l.ID = "../instances/i-1" })},
		"left-overs that follow themselves": {leftovers, cloudapi.LeftoverList{NextPageToken: "p"}},
		"too many left-overs": {
			leftovers, cloudapi.LeftoverList{Items: slices.Repeat(disk(func(*cloudapi.Leftover) {}).Items, driver.MaxResources+1)},
		},
		"left-overs that are text":           {leftovers, `{"items": "leaked"}`},
		"left-overs and more than on a page": {leftovers, `{"items": [{}` + strings.Repeat(",{}", 200_000) + "]}"},
	} {
		d, cloud := against(t, answer{http.StatusOK, nil, c.body})
		resp, err := d.ListResources(t.Context(), driver.ListResourcesRequest{ScopeRequest: scope(nil), Continue: c.token})
		wantUnknown(t, name, err)
		if len(resp.Items) > 0 || resp.Continue != "" || len(cloud.requests) != 1 {
			t.Errorf("%s: %+v after %d requests", name, resp, len(cloud.requests))
		}
	}
}

func TestDeleteResource(t *testing.T) {
	const condition = "?ifTag=machine-uid%3Duid-a&ifTag=control-cluster%3Dcc"
	ofVM := driver.Resource{Kind: driver.ResourceVM, ID: "simulated:///r/z/i-1", MachineUID: "uid-a"}
	ofDisk := driver.Resource{Kind: driver.ResourceDisk, ID: "disk-1", MachineUID: "uid-a"}
	ofNIC := driver.Resource{Kind: driver.ResourceNetworkInterface, ID: "nic-1", MachineUID: "uid-a"}
	with := func(r driver.Resource, change func(*driver.Resource)) driver.Resource {
		change(&r)
		return r
	}
	left := func(id string) answer { return answer{http.StatusOK, nil, cloudapi.Leftover{ID: id}} }
	for name, c := range map[string]struct {
		resource driver.Resource
		answer   answer
		request  string // "" for none
		gone     bool
		code     driver.Code
	}{
		"a VM that stops":      {ofVM, answer{http.StatusOK, nil, vm(cloudapi.StateStopping)}, "/v1/instances/i-1", false, driver.OK},
		"a VM that has ended":  {ofVM, answer{http.StatusOK, nil, vm(cloudapi.StateTerminated)}, "/v1/instances/i-1", true, driver.OK},
		"no VM":                {ofVM, refusal(404, cloudapi.CodeNotFound), "/v1/instances/i-1", true, driver.OK},
		"a VM with other tags": {ofVM, refusal(412, cloudapi.CodePreconditionFailed), "/v1/instances/i-1", true, driver.OK},
		"a VM that may not":    {ofVM, refusal(403, cloudapi.CodeForbidden), "/v1/instances/i-1", false, driver.PermissionDenied},
		"another VM": {
			ofVM, withVM(answer{http.StatusOK, nil, vm(cloudapi.StateTerminated)}, "i-2"), "/v1/instances/i-1", false, driver.Internal,
		},
		"a 404 of a proxy":       {ofVM, answer{http.StatusNotFound, nil, "<html>"}, "/v1/instances/i-1", false, driver.Unknown},
		"a disk":                 {ofDisk, left("disk-1"), "/v1/leftovers/disk-1", true, driver.OK},
		"a network interface":    {ofNIC, left("nic-1"), "/v1/leftovers/nic-1", true, driver.OK},
		"no disk":                {ofDisk, refusal(404, cloudapi.CodeNotFound), "/v1/leftovers/disk-1", true, driver.OK},
		"a disk with other tags": {ofDisk, refusal(412, cloudapi.CodePreconditionFailed), "/v1/leftovers/disk-1", true, driver.OK},
		"another disk":           {ofDisk, left("disk-2"), "/v1/leftovers/disk-1", false, driver.Internal},
		"no UID":                 {with(ofVM, func(r *driver.Resource) { r.MachineUID = "" }), answer{}, "", false, driver.InvalidArgument},
		"no ID":                  {with(ofDisk, func(r *driver.Resource) { r.ID = "" }), answer{}, "", false, driver.InvalidArgument},
		"a disk with a path": {
			with(ofDisk, func(r *driver.Resource) { r.ID = "../instances/i-1" }), answer{}, "", false, driver.InvalidArgument,
		},
		"a VM of another cloud": {with(ofVM, func(r *driver.Resource) { r.ID = "aws:///r/i-1" }), answer{}, "", false, driver.InvalidArgument},
		"an address": {
			with(ofDisk, func(r *driver.Resource) { r.Kind = driver.ResourceAddress }), answer{}, "", false, driver.InvalidArgument,
		},
	} {
		d, cloud := against(t, c.answer)
		resp, err := d.DeleteResource(t.Context(), driver.DeleteResourceRequest{ScopeRequest: scope(nil), Resource: c.resource})
		if resp.Gone != c.gone || driver.CodeOf(err) != c.code {
			t.Errorf("%s: gone=%t, %v; want %t, %v", name, resp.Gone, err, c.gone, c.code)
		}
		var want []string
		if c.request != "" {
			want = []string{"DELETE " + c.request + condition}
		}
		if diff := cmp.Diff(want, cloud.requests); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", name, diff)
		}
	}
}

// What cannot be swept sends no request.
func TestSweepsThatAreRejectedSendNoRequest(t *testing.T) {
	unknown := scope(nil)
	unknown.ControlCluster = ""
	for name, req := range map[string]driver.ListResourcesRequest{
		"an unknown control cluster":  {ScopeRequest: unknown},
		"a token without its list":    {ScopeRequest: scope(nil), Continue: "p2"},
		"a token of an unknown list":  {ScopeRequest: scope(nil), Continue: "disks:p2"},
		"an endpoint of another site": {ScopeRequest: scope(map[string][]byte{SecretEndpoint: []byte("https://elsewhere")})},
	} {
		d, cloud := against(t, answer{http.StatusOK, nil, cloudapi.InstanceList{}})
		if _, err := d.ListResources(t.Context(), req); driver.CodeOf(err) != driver.InvalidArgument || len(cloud.requests) > 0 {
			t.Errorf("%s: %v after %d requests, want InvalidArgument after none", name, err, len(cloud.requests))
		}
	}
	d, cloud := against(t, answer{http.StatusOK, nil, vm(cloudapi.StateTerminated)})
	_, err := d.DeleteResource(t.Context(), driver.DeleteResourceRequest{ScopeRequest: unknown, Resource: driver.Resource{
		Kind: driver.ResourceVM, ID: "simulated:///r/z/i-1", MachineUID: "uid-a",
	}})
	if driver.CodeOf(err) != driver.InvalidArgument || len(cloud.requests) > 0 {
		t.Errorf("DeleteResource: %v after %d requests, want InvalidArgument after none", err, len(cloud.requests))
	}
}
