package simulated

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
)

// find returns the one VM of a Machine that has not begun to end.
func (d *Driver) find(ctx context.Context, op driver.Op, target driver.Target) (cloudapi.Instance, error) {
	if target.Machine.Spec.ProviderID == "" {
		return d.findByUID(ctx, op, target)
	}
	id, err := parseProviderID(op, target.Machine.Spec.ProviderID)
	if err != nil {
		return cloudapi.Instance{}, err
	}
	var vm cloudapi.Instance
	if err := d.do(ctx, call{
		op: op, secret: target.Secret, method: http.MethodGet, path: instancePath(cloudapi.PathInstance, id),
	}, &vm); err != nil {
		return cloudapi.Instance{}, err
	}
	if !alive(vm) {
		return cloudapi.Instance{}, driver.Errorf(op, driver.NotFound, "VM %s is %s: %s", vm.ProviderID, vm.State, vm.StateReason)
	}
	return vm, nil
}

// findByUID is find for a Machine whose provider ID is not known.
func (d *Driver) findByUID(ctx context.Context, op driver.Op, target driver.Target) (cloudapi.Instance, error) {
	vms, err := d.listByUID(ctx, op, target, cloudapi.StatePending, cloudapi.StateRunning)
	switch {
	case err != nil:
		return cloudapi.Instance{}, err
	case len(vms) == 0:
		return cloudapi.Instance{}, driver.Errorf(op, driver.NotFound, "no VM has the tag %s=%s", TagMachineUID, target.Machine.UID)
	case len(vms) > 1:
		return cloudapi.Instance{}, driver.Errorf(op, driver.OutOfRange, "%d VMs have the tag %s=%s; expected one: %s, %s",
			len(vms), TagMachineUID, target.Machine.UID, vms[0].ProviderID, vms[1].ProviderID)
	}
	return vms[0], nil
}

func (d *Driver) listByUID(ctx context.Context, op driver.Op, target driver.Target, states ...cloudapi.InstanceState) ([]cloudapi.Instance, error) {
	if target.Machine.UID == "" {
		return nil, driver.Errorf(op, driver.InvalidArgument, "Machine %q has neither provider ID nor UID: its VM cannot be found", target.Machine.Name)
	}
	return d.list(ctx, op, target.Secret, TagMachineUID+"="+string(target.Machine.UID), states...)
}

// list returns all VMs with a tag and one of the states: all pages, or an error.
func (d *Driver) list(ctx context.Context, op driver.Op, secret map[string][]byte, tag string, states ...cloudapi.InstanceState) ([]cloudapi.Instance, error) {
	query := url.Values{cloudapi.QueryTag: {tag}, cloudapi.QueryPageSize: {strconv.Itoa(cloudapi.MaxPageSize)}}
	for _, state := range states {
		query.Add(cloudapi.QueryState, string(state))
	}
	var all []cloudapi.Instance
	for {
		var page cloudapi.InstanceList
		if err := d.do(ctx, call{op: op, secret: secret, method: http.MethodGet, path: cloudapi.PathInstances, query: query}, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		switch page.NextPageToken {
		case "":
			return all, nil
		case query.Get(cloudapi.QueryPageToken):
			return nil, driver.Errorf(op, driver.Internal, "the cloud's list does not end: page %q follows itself", page.NextPageToken)
		}
		query.Set(cloudapi.QueryPageToken, page.NextPageToken)
	}
}

// instanceID returns the cloud's ID of the Machine's VM, and asks the cloud only if the Machine does not say.
func (d *Driver) instanceID(ctx context.Context, op driver.Op, target driver.Target) (string, error) {
	if target.Machine.Spec.ProviderID != "" {
		return parseProviderID(op, target.Machine.Spec.ProviderID)
	}
	vm, err := d.findByUID(ctx, op, target)
	return vm.ID, err
}

// parseProviderID returns the cloud's ID in simulated:///<region>/<zone>/<id>.
func parseProviderID(op driver.Op, providerID string) (string, error) {
	parts := strings.Split(strings.TrimPrefix(providerID, cloudapi.ProviderIDPrefix), "/")
	if !strings.HasPrefix(providerID, cloudapi.ProviderIDPrefix) || len(parts) != 3 || strings.Trim(parts[2], ".") == "" {
		return "", driver.Errorf(op, driver.InvalidArgument, "provider ID %q is not of this cloud; expected %s<region>/<zone>/<id>", providerID, cloudapi.ProviderIDPrefix)
	}
	return parts[2], nil
}

// instancePath puts an ID into one of cloudapi's paths.
func instancePath(pattern, id string) string {
	return strings.Replace(pattern, "{id}", url.PathEscape(id), 1)
}

// alive says whether a VM has not begun to end.
func alive(vm cloudapi.Instance) bool {
	return vm.State == cloudapi.StatePending || vm.State == cloudapi.StateRunning
}

func describe(vm cloudapi.Instance) driver.VM {
	found := driver.VM{ProviderID: vm.ProviderID, NodeName: vm.Name}
	if vm.PrivateIP != "" {
		found.Addresses = append(found.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: vm.PrivateIP})
	}
	found.Addresses = append(found.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: vm.Name})
	return found
}
