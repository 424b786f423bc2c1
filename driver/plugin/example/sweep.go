package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// pageSize is how many VMs one page of the sweep has: few, as the cloud is small.
const pageSize = 10

// Scope returns the folder, which is the account.
func (c *cloud) Scope(driver.ScopeRequest) (string, error) { return c.folder, nil }

// tokenPrefix is followed, in the token for the next page, by the last name of the page before.
const tokenPrefix = "after:"

// ListResources returns one page of the VMs that have all four tags.
func (c *cloud) ListResources(ctx context.Context, req driver.ListResourcesRequest) (driver.ListResourcesResponse, error) {
	if req.ControlCluster == "" {
		return driver.ListResourcesResponse{}, driver.Errorf(driver.OpResources, driver.InvalidArgument,
			"expected the ID of the control cluster, got none")
	}
	after, valid := strings.CutPrefix(req.Continue, tokenPrefix)
	if !valid && req.Continue != "" {
		return driver.ListResourcesResponse{}, driver.Errorf(driver.OpResources, driver.InvalidArgument,
			"expected a token of a page, got another text")
	}
	var resp driver.ListResourcesResponse
	err := c.each(ctx, driver.OpResources, after, func(found vm) (more bool) {
		if found.Namespace == req.Class.Namespace && found.ControlCluster == req.ControlCluster && found.Machine != "" {
			resp.Items = append(resp.Items, driver.Resource{
				Kind: driver.ResourceVM, ID: providerIDPrefix + string(found.UID), NodeName: found.Machine,
				Namespace: found.Namespace, Machine: found.Machine, MachineUID: found.UID,
			})
		}
		if len(resp.Items) == pageSize {
			resp.Continue = tokenPrefix + string(found.UID)
		}
		return resp.Continue == ""
	})
	if err != nil {
		return driver.ListResourcesResponse{}, err
	}
	return resp, nil
}

// DeleteResource removes a VM that still has the tags of the request.
func (c *cloud) DeleteResource(ctx context.Context, req driver.DeleteResourceRequest) (driver.DeleteResourceResponse, error) {
	r := req.Resource
	if err := check(ctx, driver.OpSweep, r.MachineUID); err != nil {
		return driver.DeleteResourceResponse{}, err
	}
	if r.Kind != driver.ResourceVM || r.ID == "" || req.ControlCluster == "" {
		return driver.DeleteResourceResponse{}, driver.Errorf(driver.OpSweep, driver.InvalidArgument,
			"expected a VM with an ID, and a control cluster")
	}
	found, exists, err := c.read(r.MachineUID)
	if err == nil && exists && r.ID == providerIDPrefix+string(found.UID) && found.ControlCluster == req.ControlCluster {
		err = os.Remove(c.path(r.MachineUID))
	}
	if err != nil && (!errors.Is(err, fs.ErrNotExist) || !c.answers()) {
		return driver.DeleteResourceResponse{}, unavailable(driver.OpSweep, err)
	}
	return driver.DeleteResourceResponse{Gone: true}, nil
}

// each calls visit for the VMs that have not ended and whose names follow after, in the order of
// their names, until visit returns false.
func (c *cloud) each(ctx context.Context, op driver.Op, after string, visit func(found vm) (more bool)) error {
	entries, err := os.ReadDir(c.folder) // in order
	if err != nil {
		return unavailable(op, err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, ".") || name <= after {
			continue
		}
		if err := check(ctx, op, types.UID(name)); err != nil {
			return err
		}
		found, exists, err := c.read(types.UID(name))
		if err != nil {
			return unavailable(op, err)
		}
		if exists && !found.Ended && !visit(found) {
			return nil
		}
	}
	return nil
}
