package aws

import (
	"context"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
)

const (
	// pageSize is how many VMs are on a page of a long list: httpclient.Page allows 640 elements for
	// each of them.
	pageSize = 200
	// maxPages is how many pages one list has at most: enough for driver.MaxListed VMs in pages of a
	// tenth of the requested size.
	maxPages = 10 * driver.MaxListed / pageSize
)

// Prefixes of the cloud's IDs.
const (
	vmPrefix     = "i-"
	nicPrefix    = "eni-"
	volumePrefix = "vol-"
)

// look contains what find has found apart from a Machine's VM.
type look struct {
	// left reports whether the provider ID names a VM that is not the Machine's.
	left bool
	// isUnknown reports whether the provider ID names a VM that the cloud does not show.
	isUnknown bool
}

// find returns the one VM of a Machine that has not begun to end.
func (a *account) find(ctx context.Context, op driver.Op, target driver.Target) (found types.Instance, l look, err error) {
	if id, ok := parseProviderID(target.Machine.Spec.ProviderID); ok {
		vm, exists, err := a.vm(ctx, op, id)
		switch {
		case err != nil:
			return types.Instance{}, look{}, err
		case exists && !isEnding(vm) && owns(target, fromTags(vm.Tags)):
			return vm, look{}, verify(op, vm, target)
		}
		l = look{left: exists && !isEnding(vm), isUnknown: !exists}
	}
	found, err = a.findByUID(ctx, op, target, alive())
	return found, l, err
}

// vm returns the VM of an ID; exists is false when the cloud answers that there is none.
func (a *account) vm(ctx context.Context, op driver.Op, id string) (found types.Instance, exists bool, err error) {
	out, err := a.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if codeIs(err, codeVMNotFound, codeVMMalformed) {
		return types.Instance{}, false, nil
	}
	if err != nil {
		return types.Instance{}, false, a.failed(ctx, op, err)
	}
	all := flatten(out.Reservations)
	if len(all) == 0 {
		return types.Instance{}, false, nil
	}
	if err := verifyID(op, all[0]); err != nil || len(all) != 1 || sdk.ToString(all[0].InstanceId) != id {
		return types.Instance{}, false, driver.Errorf(op, driver.Internal, "the cloud answered with %d VMs, the first of them %q; expected %q",
			len(all), sdk.ToString(all[0].InstanceId), id)
	}
	return all[0], true, nil
}

// findByUID returns the VM with the Machine's UID in one of some states. It stops at the second
// one. Errors: NotFound, OutOfRange.
func (a *account) findByUID(
	ctx context.Context, op driver.Op, target driver.Target, states []types.InstanceStateName,
) (found types.Instance, err error) {
	known := false
	err = a.eachByUID(ctx, op, target, states, func(page []types.Instance, _ bool) (more bool, err error) {
		for _, vm := range page {
			if known {
				return false, driver.Errorf(op, driver.OutOfRange, "several VMs have the tag %s=%s; expected one: %s, %s",
					TagMachineUID, target.Machine.UID, a.providerID(found), a.providerID(vm))
			}
			found, known = vm, true
		}
		return true, nil
	})
	switch {
	case err != nil:
		return types.Instance{}, err
	case !known:
		return types.Instance{}, driver.Errorf(op, driver.NotFound, "no VM has the tag %s=%s", TagMachineUID, target.Machine.UID)
	}
	return found, verify(op, found, target)
}

// createdBefore returns the VM that a create has created for the Machine before: one that lives, or
// else one that has ended.
func (a *account) createdBefore(ctx context.Context, target driver.Target) (types.Instance, error) {
	vm, err := a.findByUID(ctx, driver.OpCreate, target, alive())
	if driver.CodeOf(err) != driver.NotFound {
		return vm, err
	}
	ended, err := a.findByUID(ctx, driver.OpCreate, target, ending())
	if driver.CodeOf(err) == driver.OutOfRange {
		err = driver.Errorf(driver.OpCreate, driver.Aborted,
			"several VMs that were created for Machine %q have ended; a Machine gets one VM in its life", target.Machine.Name)
	}
	return ended, err
}

// eachByUID is eachPage of the VMs with the Machine's UID.
func (a *account) eachByUID(
	ctx context.Context, op driver.Op, target driver.Target, states []types.InstanceStateName,
	use func(page []types.Instance, isLast bool) (more bool, err error),
) error {
	uid := string(target.Machine.UID)
	if uid == "" {
		return withoutUID(op, target)
	}
	return a.eachPage(ctx, list{
		op: op, filters: []types.Filter{hasTag(TagMachineUID, uid), inStates(states...)}, tags: map[string]string{TagMachineUID: uid},
		size: driver.MaxOwned, pages: driver.MaxOwned,
	}, use)
}

// list is a list of VMs.
type list struct {
	op      driver.Op
	filters []types.Filter
	tags    map[string]string // that the filters require, as far as they are checked
	size    int32             // of a page, in VMs
	pages   int               // at most
}

// eachPage calls use with the pages of a list, one after the other, until it returns false.
func (a *account) eachPage(ctx context.Context, l list, use func(page []types.Instance, isLast bool) (more bool, err error)) error {
	token := ""
	for range l.pages {
		page, next, err := a.page(ctx, l, token)
		if err != nil {
			return err
		}
		more, err := use(page, next == "")
		if err != nil || !more || next == "" {
			return err
		}
		token = next
	}
	return driver.Errorf(l.op, driver.Internal, "the cloud's list does not end: it has more than %d pages", l.pages)
}

// page reads the page of a list that has a token.
func (a *account) page(ctx context.Context, l list, token string) (vms []types.Instance, next string, err error) {
	out, err := a.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{
		Filters: l.filters, MaxResults: sdk.Int32(l.size), NextToken: optional(token),
	})
	if err != nil {
		return nil, "", a.failed(ctx, l.op, err)
	}
	vms, next = flatten(out.Reservations), sdk.ToString(out.NextToken)
	if err := httpclient.CheckPage(l.op, len(vms), int(l.size), token, next); err != nil {
		return nil, "", err
	}
	for _, vm := range vms {
		if err := verifyID(l.op, vm); err != nil {
			return nil, "", err
		}
		if err := verifyTags(l.op, sdk.ToString(vm.InstanceId), fromTags(vm.Tags), l.tags); err != nil {
			return nil, "", err
		}
	}
	return vms, next, nil
}

// flatten returns the VMs of all reservations.
func flatten(reservations []types.Reservation) (vms []types.Instance) {
	for _, r := range reservations {
		vms = append(vms, r.Instances...)
	}
	return vms
}

// alive are the states of VMs that have not begun to end. A VM that is stopped can be started.
func alive() []types.InstanceStateName {
	return []types.InstanceStateName{
		types.InstanceStateNamePending, types.InstanceStateNameRunning, types.InstanceStateNameStopping, types.InstanceStateNameStopped,
	}
}

// ending are the other states.
func ending() []types.InstanceStateName {
	return []types.InstanceStateName{types.InstanceStateNameShuttingDown, types.InstanceStateNameTerminated}
}

// inStates is the filter for VMs in one of some states.
func inStates(states ...types.InstanceStateName) types.Filter {
	values := make([]string, 0, len(states))
	for _, s := range states {
		values = append(values, string(s))
	}
	return filter("instance-state-name", values...)
}

// isEnding reports whether a VM has begun to end.
func isEnding(vm types.Instance) bool {
	return vm.State.Name == types.InstanceStateNameShuttingDown || vm.State.Name == types.InstanceStateNameTerminated
}

// owns reports whether a resource with these tags is the Machine's.
func owns(target driver.Target, tags map[string]string) bool {
	m := target.Machine
	if uid, has := tags[TagMachineUID]; has {
		return uid != "" && uid == string(m.UID)
	}
	if !target.Adopt || tags[TagName] != m.Name || m.Namespace != target.Class.Namespace {
		return false
	}
	if namespace, has := tags[TagNamespace]; has && namespace != m.Namespace {
		return false
	}
	spec, err := decode(target.Class.ProviderSpec.Raw)
	keys := clusterKeys(spec)
	for _, key := range keys {
		if _, has := tags[key]; !has {
			return false
		}
	}
	return err == nil && len(keys) > 0
}

// nameOf returns the name of the Machine for which a VM was created.
func nameOf(vm types.Instance) string {
	tags := fromTags(vm.Tags)
	if name, has := tags[TagMachine]; has {
		return name
	}
	return tags[TagName]
}

// verify returns an error unless a VM of an answer can be the Machine's.
func verify(op driver.Op, vm types.Instance, target driver.Target) error {
	if err := verifyID(op, vm); err != nil {
		return err
	}
	uid, has := fromTags(vm.Tags)[TagMachineUID]
	if name := nameOf(vm); name != target.Machine.Name || has && uid != string(target.Machine.UID) {
		return driver.Errorf(op, driver.Internal,
			"the cloud answered with VM %q of Machine %q with UID %q; expected that of Machine %q with UID %q",
			sdk.ToString(vm.InstanceId), name, uid, target.Machine.Name, target.Machine.UID)
	}
	return nil
}

// verifyID returns an error unless an answer can describe a VM. Its ID becomes part of further
// requests.
func verifyID(op driver.Op, vm types.Instance) error {
	if id := sdk.ToString(vm.InstanceId); !isID(id, vmPrefix) {
		return driver.Errorf(op, driver.Internal, "the cloud answered with a VM %q; expected an ID such as i-0123456789abcdef0", id)
	}
	if vm.State == nil || vm.State.Name == "" {
		return driver.Errorf(op, driver.Internal, "the cloud answered with VM %q without a state", *vm.InstanceId)
	}
	return nil
}

// verifyTags returns an error unless a resource on a page has the tags that were requested.
func verifyTags(op driver.Op, id string, tags, requested map[string]string) error {
	for key, value := range requested {
		if tags[key] != value {
			return driver.Errorf(op, driver.Internal, "the cloud listed %s, which lacks the tag %s=%s", id, key, value)
		}
	}
	return nil
}

func withoutUID(op driver.Op, target driver.Target) error {
	return driver.Errorf(op, driver.InvalidArgument, "Machine %q has no UID: no VM can be identified as its own", target.Machine.Name)
}

// providerIDPrefix begins the provider IDs of this cloud.
const providerIDPrefix = "aws:///"

// providerID returns aws:///<region>/<instance>.
func (a *account) providerID(vm types.Instance) string {
	return providerIDPrefix + a.region + "/" + sdk.ToString(vm.InstanceId)
}

// parseProviderID returns the cloud's ID in aws:///<region or zone>/<instance>; ok is false for
// what names no VM of this cloud.
func parseProviderID(text string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(text, providerIDPrefix)
	_, id, hasZone := strings.Cut(rest, "/")
	return id, ok && hasZone && isID(id, vmPrefix)
}

// isID reports whether a text can be an ID of the cloud with this prefix.
func isID(text, prefix string) bool {
	digits, ok := strings.CutPrefix(text, prefix)
	return ok && digits != "" && len(digits) <= 32 &&
		!strings.ContainsFunc(digits, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'z') })
}

// describe returns what the fleet knows of a VM.
func (a *account) describe(vm types.Instance) driver.VM {
	found := driver.VM{ProviderID: a.providerID(vm), NodeName: sdk.ToString(vm.PrivateDnsName)}
	if vm.State != nil {
		found.State = string(vm.State.Name)
	}
	add := func(kind corev1.NodeAddressType, address string) {
		if address != "" && len(found.Addresses) < driver.MaxAddresses {
			found.Addresses = append(found.Addresses, corev1.NodeAddress{Type: kind, Address: address})
		}
	}
	add(corev1.NodeInternalIP, sdk.ToString(vm.PrivateIpAddress))
	for _, nic := range vm.NetworkInterfaces {
		for _, address := range nic.Ipv6Addresses {
			add(corev1.NodeInternalIP, sdk.ToString(address.Ipv6Address))
		}
	}
	add(corev1.NodeExternalIP, sdk.ToString(vm.PublicIpAddress))
	add(corev1.NodeInternalDNS, found.NodeName)
	add(corev1.NodeHostName, found.NodeName)
	add(corev1.NodeExternalDNS, sdk.ToString(vm.PublicDnsName))
	return found
}
