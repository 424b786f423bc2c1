package aws

import (
	"context"
	"fmt"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/unseen"
)

// setting is a value to be set on a network interface after the create.
type setting struct {
	nic string
	// prefixes is how many IPv6 prefixes are missing; 0 means that the check of source and destination
	// is to be disabled.
	prefixes int32
}

// String describes what is missing.
func (s setting) String() string {
	if s.prefixes > 0 {
		return fmt.Sprintf("network interface %s lacks %d IPv6 prefixes", s.nic, s.prefixes)
	}
	return fmt.Sprintf("network interface %s checks source and destination", s.nic)
}

func texts(settings []setting) (list []string) {
	for _, s := range settings {
		list = append(list, s.String())
	}
	return list
}

// isInitialized reports whether a provider spec has nothing that is set after the create.
func isInitialized(spec ProviderSpec) bool {
	for _, nic := range spec.NetworkInterfaces {
		if nic.IPv6PrefixCount != nil && *nic.IPv6PrefixCount > 0 {
			return false
		}
	}
	return *orTrue(spec.SrcAndDstChecksEnabled)
}

// toInitialize returns what is to be set on a VM's network interfaces.
func toInitialize(spec ProviderSpec, vm types.Instance) (missing []setting) {
	for _, nic := range vm.NetworkInterfaces {
		id := sdk.ToString(nic.NetworkInterfaceId)
		if !*orTrue(spec.SrcAndDstChecksEnabled) && sdk.ToBool(nic.SourceDestCheck) {
			missing = append(missing, setting{nic: id})
		}
		if count := prefixesOf(spec, nic) - int32(len(nic.Ipv6Prefixes)); count > 0 {
			missing = append(missing, setting{nic: id, prefixes: count})
		}
	}
	return missing
}

// prefixesOf returns how many IPv6 prefixes the provider spec has for a network interface, which it
// describes at the same index.
func prefixesOf(spec ProviderSpec, nic types.InstanceNetworkInterface) int32 {
	if nic.Attachment == nil {
		return 0
	}
	for i, s := range spec.NetworkInterfaces {
		device := int32(i)
		if s.DeviceIndex != nil {
			device = *s.DeviceIndex
		}
		if device == sdk.ToInt32(nic.Attachment.DeviceIndex) && sdk.ToInt32(s.NetworkCardIndex) == sdk.ToInt32(nic.Attachment.NetworkCardIndex) {
			return sdk.ToInt32(s.IPv6PrefixCount)
		}
	}
	return 0
}

// InitializeMachine disables the check of source and destination, and assigns IPv6 prefixes, on the
// network interfaces that lack it. It reads the VM first, and sends one request for each setting
// that is missing. A provider spec without such a field is Unimplemented.
func (d *Driver) InitializeMachine(ctx context.Context, req driver.InitializeMachineRequest) (driver.InitializeMachineResponse, error) {
	ctx, cancel := httpclient.Bounded(ctx)
	defer cancel()
	spec, err := ParseProviderSpec(req.Class.ProviderSpec.Raw)
	if err != nil {
		return driver.InitializeMachineResponse{}, driver.Errorf(driver.OpInitialize, driver.InvalidArgument, "%w", err)
	}
	if isInitialized(spec) {
		return driver.InitializeMachineResponse{}, driver.Errorf(driver.OpInitialize, driver.Unimplemented,
			"the provider spec has no field that is set after the create")
	}
	a, err := d.account(driver.OpInitialize, req.Class, req.Secret)
	if err != nil {
		return driver.InitializeMachineResponse{}, err
	}
	vm, look, err := a.find(ctx, driver.OpInitialize, req.Target)
	if driver.CodeOf(err) == driver.NotFound && !look.left && unseen.MayBe(req.Machine, driver.Now(ctx, d.clock.Now()), settleTime) {
		err = driver.Pendingf(driver.OpInitialize, driver.Unavailable, "the cloud does not show the VM yet")
	}
	if err != nil {
		return driver.InitializeMachineResponse{}, err
	}
	for _, missing := range toInitialize(spec, vm) {
		if !isID(missing.nic, nicPrefix) {
			return driver.InitializeMachineResponse{}, driver.Errorf(driver.OpInitialize, driver.Internal,
				"the cloud answered with a network interface %q", missing.nic)
		}
		if err := a.set(ctx, missing); err != nil {
			return driver.InitializeMachineResponse{}, a.failed(ctx, driver.OpInitialize, err)
		}
	}
	return driver.InitializeMachineResponse{VM: a.describe(vm)}, nil
}

// set sets what a network interface lacks.
func (a *account) set(ctx context.Context, s setting) (err error) {
	if s.prefixes > 0 {
		_, err = a.ec2.AssignIpv6Addresses(ctx, &ec2.AssignIpv6AddressesInput{
			NetworkInterfaceId: sdk.String(s.nic), Ipv6PrefixCount: sdk.Int32(s.prefixes),
		})
		return err
	}
	_, err = a.ec2.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{
		NetworkInterfaceId: sdk.String(s.nic), SourceDestCheck: &types.AttributeBooleanValue{Value: sdk.Bool(false)},
	})
	return err
}
