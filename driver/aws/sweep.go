package aws

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
)

// sweepSize is how many resources are on a page of a sweep.
const sweepSize = pageSize

// listOfVMs begins the tokens of the pages of VMs. Those of left-overs begin with their kind. The
// lists are read one after the other.
const listOfVMs = "VM:"

// Scope returns region, endpoint and a hash of who is authenticated: the driver does not know the
// number of the account without a request. Two access keys of one account are two scopes.
func (d *Driver) Scope(req driver.ScopeRequest) (string, error) {
	a, err := d.account(driver.OpScope, req.Class, req.Secret)
	if err != nil {
		return "", err
	}
	id, err := parseSecret(req.Secret)
	if err != nil {
		return "", driver.Errorf(driver.OpScope, driver.InvalidArgument, "%w", err)
	}
	endpoint, err := d.endpointOf(id)
	if err != nil {
		return "", driver.Errorf(driver.OpScope, driver.InvalidArgument, "%w", err)
	}
	scope := "aws:" + a.region
	if endpoint != nil {
		scope += "@" + *endpoint
	}
	return scope + "#" + id.name(), nil
}

// ListResources returns the VMs with the tags of the fleet that have not begun to end, and after
// their last page the network interfaces and then the volumes with these tags that no VM uses. Each
// call sends one request.
func (d *Driver) ListResources(ctx context.Context, req driver.ListResourcesRequest) (driver.ListResourcesResponse, error) {
	ctx, cancel := httpclient.Bounded(ctx)
	defer cancel()
	if err := mayBeSwept(driver.OpResources, req.ScopeRequest); err != nil {
		return driver.ListResourcesResponse{}, err
	}
	a, err := d.account(driver.OpResources, req.Class, req.Secret)
	if err != nil {
		return driver.ListResourcesResponse{}, err
	}
	tags := map[string]string{TagNamespace: req.Class.Namespace, TagControlCluster: req.ControlCluster}
	nextList := ""
	for _, kind := range slices.Backward(leftovers()) {
		begin := string(kind) + ":"
		if token, ok := strings.CutPrefix(req.Continue, begin); ok {
			return a.listLeftovers(ctx, kind, tags, token, begin, nextList)
		}
		nextList = begin
	}
	token, ok := strings.CutPrefix(req.Continue, listOfVMs)
	if !ok && req.Continue != "" {
		return driver.ListResourcesResponse{}, driver.Errorf(driver.OpResources, driver.InvalidArgument,
			"no page has the token %q; expected one that begins with %q", req.Continue, listOfVMs)
	}
	page, next, err := a.page(ctx, list{
		op: driver.OpResources, size: sweepSize, tags: tags,
		filters: []types.Filter{inStates(alive()...), hasTag(TagNamespace, req.Class.Namespace), hasTag(TagControlCluster, req.ControlCluster)},
	}, token)
	if err != nil {
		return driver.ListResourcesResponse{}, err
	}
	resp := driver.ListResourcesResponse{Continue: nextList}
	if next != "" {
		resp.Continue = listOfVMs + next
	}
	for _, vm := range page {
		if r, ok := createdFor(fromTags(vm.Tags)); ok {
			described := a.describe(vm)
			r.Kind, r.ID, r.NodeName = driver.ResourceVM, described.ProviderID, described.NodeName
			resp.Items = append(resp.Items, r)
		}
	}
	return resp, nil
}

// listLeftovers returns a page of left-overs. begin begins the token of the next page, and nextList
// is the token of the next list.
func (a *account) listLeftovers(
	ctx context.Context, kind driver.ResourceKind, tags map[string]string, token, begin, nextList string,
) (driver.ListResourcesResponse, error) {
	found, next, err := a.unused(ctx, driver.OpResources, kind, tags, sweepSize, token)
	if err != nil {
		return driver.ListResourcesResponse{}, err
	}
	resp := driver.ListResourcesResponse{Continue: nextList}
	if next != "" {
		resp.Continue = begin + next
	}
	for _, l := range found {
		if r, ok := createdFor(l.tags); ok {
			r.Kind, r.ID = kind, l.id
			resp.Items = append(resp.Items, r)
		}
	}
	return resp, nil
}

// createdFor returns the Machine for which a resource with these tags was created; ok is false if
// the tags do not identify one.
func createdFor(tags map[string]string) (r driver.Resource, ok bool) {
	r = driver.Resource{Namespace: tags[TagNamespace], Machine: tags[TagMachine], MachineUID: apitypes.UID(tags[TagMachineUID])}
	return r, r.Namespace != "" && r.Machine != "" && r.MachineUID != ""
}

// DeleteResource deletes a VM or a left-over. It reads the tags immediately before.
func (d *Driver) DeleteResource(ctx context.Context, req driver.DeleteResourceRequest) (driver.DeleteResourceResponse, error) {
	ctx, cancel := httpclient.Bounded(ctx)
	defer cancel()
	r := req.Resource
	if err := mayBeSwept(driver.OpSweep, req.ScopeRequest); err != nil {
		return driver.DeleteResourceResponse{}, err
	}
	if r.MachineUID == "" {
		return driver.DeleteResourceResponse{},
			driver.Errorf(driver.OpSweep, driver.InvalidArgument, "%s %q without the UID of its Machine", r.Kind, r.ID)
	}
	a, err := d.account(driver.OpSweep, req.Class, req.Secret)
	if err != nil {
		return driver.DeleteResourceResponse{}, err
	}
	gone, err := a.sweep(ctx, r, map[string]string{TagMachineUID: string(r.MachineUID), TagControlCluster: req.ControlCluster})
	return driver.DeleteResourceResponse{Gone: gone && err == nil}, err
}

// sweep deletes a resource that has the tags. gone reports whether nothing of it is left to delete.
func (a *account) sweep(ctx context.Context, r driver.Resource, tags map[string]string) (gone bool, err error) {
	switch r.Kind {
	case driver.ResourceVM:
		if id, ok := parseProviderID(r.ID); ok {
			return a.sweepVM(ctx, id, tags)
		}
	case driver.ResourceNetworkInterface, driver.ResourceDisk:
		if isID(r.ID, nicPrefix) && r.Kind == driver.ResourceNetworkInterface || isID(r.ID, volumePrefix) && r.Kind == driver.ResourceDisk {
			return a.sweepLeftover(ctx, r, tags)
		}
	case driver.ResourceAddress:
	}
	return false, driver.Errorf(driver.OpSweep, driver.InvalidArgument, "the cloud has no %s %q; expected one that was listed", r.Kind, r.ID)
}

func (a *account) sweepVM(ctx context.Context, id string, tags map[string]string) (gone bool, err error) {
	vm, exists, err := a.vm(ctx, driver.OpSweep, id)
	if err != nil || !exists || verifyTags(driver.OpSweep, id, fromTags(vm.Tags), tags) != nil {
		return err == nil, err
	}
	return a.terminate(ctx, driver.OpSweep, vm)
}

func (a *account) sweepLeftover(ctx context.Context, r driver.Resource, tags map[string]string) (gone bool, err error) {
	has, err := a.hasLeftover(ctx, r, tags)
	if err != nil || !has {
		return err == nil, err
	}
	err = a.removeLeftover(ctx, driver.OpSweep, r.Kind, r.ID)
	return err == nil, err
}

// hasLeftover reports whether a left-over exists with the tags.
func (a *account) hasLeftover(ctx context.Context, r driver.Resource, tags map[string]string) (has bool, err error) {
	token := ""
	for range driver.MaxOwned {
		found, next, err := a.unused(ctx, driver.OpSweep, r.Kind, tags, driver.MaxOwned, token)
		if err != nil {
			return false, err
		}
		for _, l := range found {
			if l.id == r.ID {
				return true, nil
			}
		}
		if next == "" {
			return false, nil
		}
		token = next
	}
	return false, driver.Errorf(driver.OpSweep, driver.Internal, "the cloud's list of what was created for one machine does not end")
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
