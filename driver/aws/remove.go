package aws

import (
	"context"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/unseen"
)

// DeleteMachine removes the VM with the Machine's provider ID, whose tags it reads immediately
// before. Where there is none that is the Machine's it removes those with its UID. When no VM is
// left it removes the network interfaces and volumes with the UID that no VM uses. It sends two
// requests while the VM ends, and up to four, and one for each left-over, in the end. The provider
// spec does not matter, except for its region: a broken one does not prevent the deletion.
func (d *Driver) DeleteMachine(ctx context.Context, req driver.DeleteMachineRequest) (driver.DeleteMachineResponse, error) {
	ctx, cancel := httpclient.Bounded(ctx)
	defer cancel()
	if req.Machine.UID == "" {
		return driver.DeleteMachineResponse{}, withoutUID(driver.OpDelete, req.Target)
	}
	a, err := d.account(driver.OpDelete, req.Class, req.Secret)
	if err != nil {
		return driver.DeleteMachineResponse{}, err
	}
	resp, err := a.remove(ctx, req.Target)
	if err == nil && resp.Gone {
		resp.Gone, err = a.removeLeftovers(ctx, req.Target)
	}
	if err != nil {
		return driver.DeleteMachineResponse{}, err
	}
	return resp, nil
}

// remove begins to terminate the VMs of a Machine.
func (a *account) remove(ctx context.Context, target driver.Target) (resp driver.DeleteMachineResponse, err error) {
	if id, ok := parseProviderID(target.Machine.Spec.ProviderID); ok {
		vm, exists, err := a.vm(ctx, driver.OpDelete, id)
		switch {
		case err != nil:
			return resp, err
		case exists && owns(target, fromTags(vm.Tags)):
			gone, err := a.terminate(ctx, driver.OpDelete, vm)
			return driver.DeleteMachineResponse{Gone: gone, Owned: true}, err
		}
		resp.Left = exists && !isEnding(vm)
	}
	seen := false
	resp.Gone = true
	states := append(alive(), types.InstanceStateNameShuttingDown)
	err = a.eachByUID(ctx, driver.OpDelete, target, states, func(page []types.Instance, isLast bool) (more bool, err error) {
		if len(page) == 0 {
			return true, nil
		}
		seen = true
		gone, err := a.terminate(ctx, driver.OpDelete, page...)
		resp.Gone = gone && isLast
		return false, err
	})
	if !seen && unseen.MayBe(target.Machine, driver.Now(ctx, a.driver.clock.Now()), settleTime) {
		resp.Gone = false
	}
	return resp, err
}

// terminate begins to terminate VMs, with one request for those that have not begun to end. gone
// reports whether all have ended.
func (a *account) terminate(ctx context.Context, op driver.Op, vms ...types.Instance) (gone bool, err error) {
	gone = true
	var ids []string
	for _, vm := range vms {
		gone = gone && vm.State.Name == types.InstanceStateNameTerminated
		if !isEnding(vm) {
			ids = append(ids, *vm.InstanceId)
		}
	}
	if len(ids) == 0 {
		return gone, nil
	}
	out, err := a.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids})
	switch {
	case codeIs(err, codeVMNotFound):
		return false, nil // one has gone in the meantime, and then none of the others was terminated
	case err != nil:
		return false, a.failed(ctx, op, err)
	}
	ended := map[string]bool{}
	for _, change := range out.TerminatingInstances {
		ended[sdk.ToString(change.InstanceId)] = change.CurrentState != nil && change.CurrentState.Name == types.InstanceStateNameTerminated
	}
	gone = true
	for _, id := range ids {
		hasEnded, answered := ended[id]
		if !answered {
			return false, driver.Errorf(op, driver.Internal, "the cloud did not answer for VM %s", id)
		}
		gone = gone && hasEnded
	}
	return gone && len(ids) == len(vms), nil
}

// removeLeftovers removes the network interfaces and volumes with the Machine's UID that no VM
// uses. gone reports whether there are no more.
func (a *account) removeLeftovers(ctx context.Context, target driver.Target) (gone bool, err error) {
	uid := string(target.Machine.UID)
	gone = true
	for _, kind := range leftovers() {
		found, next, err := a.unused(ctx, driver.OpDelete, kind, map[string]string{TagMachineUID: uid}, driver.MaxOwned, "")
		if err != nil {
			return false, err
		}
		for _, l := range found {
			if err := a.removeLeftover(ctx, driver.OpDelete, kind, l.id); err != nil {
				return false, err
			}
		}
		gone = gone && next == ""
	}
	return gone, nil
}

// leftovers are the kinds of what a create may leave.
func leftovers() []driver.ResourceKind {
	return []driver.ResourceKind{driver.ResourceNetworkInterface, driver.ResourceDisk}
}

// leftover is a network interface or a volume that no VM uses.
type leftover struct {
	id   string
	tags map[string]string
}

// unused returns a page of the left-overs of a kind that have all tags.
func (a *account) unused(
	ctx context.Context, op driver.Op, kind driver.ResourceKind, tags map[string]string, size int32, token string,
) (found []leftover, next string, err error) {
	filters := []types.Filter{filter("status", "available")}
	for _, tag := range toTags(tags) {
		filters = append(filters, hasTag(*tag.Key, *tag.Value))
	}
	prefix := nicPrefix
	if kind == driver.ResourceDisk {
		prefix = volumePrefix
		var out *ec2.DescribeVolumesOutput
		out, err = a.ec2.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{
			Filters: filters, MaxResults: sdk.Int32(size), NextToken: optional(token),
		})
		if err == nil {
			next = sdk.ToString(out.NextToken)
			for _, v := range out.Volumes {
				found = append(found, leftover{sdk.ToString(v.VolumeId), fromTags(v.Tags)})
			}
		}
	} else {
		var out *ec2.DescribeNetworkInterfacesOutput
		out, err = a.ec2.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{
			Filters: filters, MaxResults: sdk.Int32(size), NextToken: optional(token),
		})
		if err == nil {
			next = sdk.ToString(out.NextToken)
			for _, n := range out.NetworkInterfaces {
				found = append(found, leftover{sdk.ToString(n.NetworkInterfaceId), fromTags(n.TagSet)})
			}
		}
	}
	if err != nil {
		return nil, "", a.failed(ctx, op, err)
	}
	if err := httpclient.CheckPage(op, len(found), int(size), token, next); err != nil {
		return nil, "", err
	}
	for _, l := range found {
		if !isID(l.id, prefix) {
			return nil, "", driver.Errorf(op, driver.Internal, "the cloud listed %q; expected IDs that begin with %s", l.id, prefix)
		}
		if err := verifyTags(op, l.id, l.tags, tags); err != nil {
			return nil, "", err
		}
	}
	return found, next, nil
}

// removeLeftover removes a left-over, if there is one. EC2 refuses it for one that a VM uses.
func (a *account) removeLeftover(ctx context.Context, op driver.Op, kind driver.ResourceKind, id string) (err error) {
	if kind == driver.ResourceDisk {
		_, err = a.ec2.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: sdk.String(id)})
	} else {
		_, err = a.ec2.DeleteNetworkInterface(ctx, &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: sdk.String(id)})
	}
	if err == nil || codeIs(err, codeNICNotFound, codeVolumeNotFound) {
		return nil
	}
	return a.failed(ctx, op, err)
}
