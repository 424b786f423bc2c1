package simulated

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// The lists that ListResources reads, one after the other. Each value begins the tokens of the
// pages of one list.
const (
	listOfVMs       = "vms:"
	listOfLeftovers = "leftovers:"
)

// kinds are those of left-overs.
var kinds = map[cloudapi.LeftoverKind]driver.ResourceKind{
	cloudapi.LeftoverNetworkInterface: driver.ResourceNetworkInterface,
	cloudapi.LeftoverDisk:             driver.ResourceDisk,
}

// Scope returns the endpoint and a hash of the credential: the cloud has no other name for an
// account. Two Secrets with different credentials of one account are two scopes.
func (d *Driver) Scope(req driver.ScopeRequest) (string, error) {
	endpoint, err := d.endpointOf(driver.OpScope, req.Secret)
	if err != nil {
		return "", err
	}
	token := bytes.TrimSpace(req.Secret[SecretToken])
	if len(token) == 0 {
		return endpoint.String(), nil
	}
	hash := sha256.Sum256(token)
	return endpoint.String() + "#" + hex.EncodeToString(hash[:8]), nil
}

// ListResources returns the VMs with the tags of the fleet that have not begun to end, and after
// their last page the left-overs with these tags. Each call sends one request. A VM or a left-over
// without the name or the UID of a Machine is not listed.
func (d *Driver) ListResources(ctx context.Context, req driver.ListResourcesRequest) (driver.ListResourcesResponse, error) {
	if err := mayBeSwept(driver.OpResources, req.ScopeRequest); err != nil {
		return driver.ListResourcesResponse{}, err
	}
	tags := []string{TagCluster + "=" + req.Class.Namespace, TagControlCluster + "=" + req.ControlCluster}
	if token, ok := strings.CutPrefix(req.Continue, listOfLeftovers); ok {
		return d.leftovers(ctx, req, tags, token)
	}
	token, ok := strings.CutPrefix(req.Continue, listOfVMs)
	if !ok && req.Continue != "" {
		return driver.ListResourcesResponse{}, driver.Errorf(driver.OpResources, driver.InvalidArgument,
			"no page has the token %q; expected one that begins with %q or %q", req.Continue, listOfVMs, listOfLeftovers)
	}
	page, err := d.page(ctx, list{
		op: driver.OpResources, secret: req.Secret, tags: tags, states: []cloudapi.InstanceState{cloudapi.StatePending, cloudapi.StateRunning},
		limits: httpclient.Page(), size: driver.MaxResources,
	}, token)
	if err != nil {
		return driver.ListResourcesResponse{}, err
	}
	resp := driver.ListResourcesResponse{Continue: listOfLeftovers}
	if page.NextPageToken != "" {
		resp.Continue = listOfVMs + page.NextPageToken
	}
	for _, vm := range page.Items {
		if r, ok := createdFor(vm.Tags); ok {
			r.Kind, r.ID, r.NodeName = driver.ResourceVM, vm.ProviderID, vm.Name
			resp.Items = append(resp.Items, r)
		}
	}
	return resp, nil
}

// leftovers returns a page of left-overs. One of a kind that the driver does not know is not
// listed, and so never deleted.
func (d *Driver) leftovers(
	ctx context.Context, req driver.ListResourcesRequest, tags []string, token string,
) (driver.ListResourcesResponse, error) {
	var page cloudapi.LeftoverList
	err := d.do(ctx, call{
		op: driver.OpResources, secret: req.Secret, method: http.MethodGet, path: cloudapi.PathLeftovers,
		query: pageQuery(tags, driver.MaxResources, token), limits: httpclient.Page(),
	}, &page)
	if err == nil {
		err = httpclient.CheckPage(driver.OpResources, len(page.Items), driver.MaxResources, token, page.NextPageToken)
	}
	if err != nil {
		return driver.ListResourcesResponse{}, err
	}
	var resp driver.ListResourcesResponse
	if page.NextPageToken != "" {
		resp.Continue = listOfLeftovers + page.NextPageToken
	}
	for _, l := range page.Items {
		if err := verifyLeftover(driver.OpResources, l, l.ID); err != nil {
			return driver.ListResourcesResponse{}, err
		}
		if err := verifyTags(driver.OpResources, l.ID, l.Tags, tags); err != nil {
			return driver.ListResourcesResponse{}, err
		}
		kind, known := kinds[l.Kind]
		if r, ok := createdFor(l.Tags); ok && known {
			r.Kind, r.ID = kind, l.ID
			resp.Items = append(resp.Items, r)
		}
	}
	return resp, nil
}

// createdFor returns the Machine for which a resource with these tags was created; ok is false if
// the tags do not identify one.
func createdFor(tags map[string]string) (r driver.Resource, ok bool) {
	r = driver.Resource{Namespace: tags[TagCluster], Machine: tags[TagMachine], MachineUID: types.UID(tags[TagMachineUID])}
	return r, r.Namespace != "" && r.Machine != "" && r.MachineUID != ""
}

// DeleteResource deletes a VM or a left-over. It sends one request, in which the cloud checks the
// tags.
func (d *Driver) DeleteResource(ctx context.Context, req driver.DeleteResourceRequest) (driver.DeleteResourceResponse, error) {
	r := req.Resource
	if err := mayBeSwept(driver.OpSweep, req.ScopeRequest); err != nil {
		return driver.DeleteResourceResponse{}, err
	}
	if r.MachineUID == "" {
		return driver.DeleteResourceResponse{},
			driver.Errorf(driver.OpSweep, driver.InvalidArgument, "%s %q without the UID of its Machine", r.Kind, r.ID)
	}
	condition := url.Values{cloudapi.QueryIfTag: {TagMachineUID + "=" + string(r.MachineUID), TagControlCluster + "=" + req.ControlCluster}}
	gone, err := d.sweep(ctx, req, condition)
	switch driver.CodeOf(err) { //nolint:exhaustive // all others are failures
	case driver.NotFound, driver.FailedPrecondition:
		return driver.DeleteResourceResponse{Gone: true}, nil
	}
	return driver.DeleteResourceResponse{Gone: gone && err == nil}, err
}

// sweep deletes a resource that meets a condition.
func (d *Driver) sweep(ctx context.Context, req driver.DeleteResourceRequest, condition url.Values) (gone bool, err error) {
	r := req.Resource
	switch r.Kind {
	case driver.ResourceVM:
		id, ok := parseProviderID(r.ID)
		if !ok {
			break
		}
		vm, err := d.remove(ctx, driver.OpSweep, req.Secret, id, condition)
		return vm.State == cloudapi.StateTerminated, err
	case driver.ResourceNetworkInterface, driver.ResourceDisk:
		if !isID(r.ID) {
			break
		}
		var removed cloudapi.Leftover
		err := d.do(ctx, call{
			op: driver.OpSweep, secret: req.Secret, method: http.MethodDelete, path: pathOf(cloudapi.PathLeftover, r.ID), query: condition,
		}, &removed)
		if err == nil {
			err = verifyLeftover(driver.OpSweep, removed, r.ID)
		}
		return true, err
	case driver.ResourceAddress:
	}
	return false, driver.Errorf(driver.OpSweep, driver.InvalidArgument, "the cloud has no %s %q; expected one that was listed", r.Kind, r.ID)
}

// mayBeSwept returns an error when the control cluster is not known: then tags do not distinguish
// what this fleet has created.
func mayBeSwept(op driver.Op, req driver.ScopeRequest) error {
	if req.ControlCluster == "" {
		return driver.Errorf(op, driver.InvalidArgument,
			"the ID of the control cluster is not known, so that the resources of the fleet cannot be identified")
	}
	return nil
}

// verifyLeftover returns an error unless a left-over of an answer can be the requested one.
func verifyLeftover(op driver.Op, l cloudapi.Leftover, id string) error {
	if !isID(l.ID) || l.ID != id {
		return driver.Errorf(op, driver.Internal, "the cloud answered with the left-over %q; expected %q", l.ID, id)
	}
	return nil
}
