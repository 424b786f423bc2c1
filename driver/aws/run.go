package aws

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

const (
	// maxToken is how many characters a client token has at most.
	maxToken = 64
	// maxUserData is how many bytes of user data EC2 accepts, before they are encoded.
	maxUserData = 16 << 10
)

// clientToken returns the client token of a Machine's create: its UID, or a hash of it where the
// UID is not a token.
func clientToken(uid string) string {
	isToken := func(r rune) bool { return '!' <= r && r <= '~' }
	if len(uid) <= maxToken && !slices.ContainsFunc([]rune(uid), func(r rune) bool { return !isToken(r) }) {
		return uid
	}
	sum := sha256.Sum256([]byte(uid))
	return hex.EncodeToString(sum[:]) // 64 characters
}

// needsRootDevice reports whether a create has to know the name of the image's root device.
func needsRootDevice(spec ProviderSpec) bool {
	return len(spec.BlockDevices) == 1 ||
		slices.ContainsFunc(spec.BlockDevices, func(d BlockDevice) bool { return d.DeviceName == RootDeviceName })
}

// runInput returns the request that creates a VM. It is the same for the same arguments: EC2
// compares the parameters of requests with one client token. rootDevice is the name of the image's
// root device, if needsRootDevice.
func runInput(spec ProviderSpec, placement *Placement, target driver.Target, userData []byte, rootDevice string) *ec2.RunInstancesInput {
	in := &ec2.RunInstancesInput{
		ClientToken: sdk.String(clientToken(string(target.Machine.UID))),
		MinCount:    sdk.Int32(1), MaxCount: sdk.Int32(1),
		ImageId: sdk.String(spec.AMI), InstanceType: types.InstanceType(spec.MachineType),
		UserData:                         sdk.String(base64.StdEncoding.EncodeToString(userData)),
		IamInstanceProfile:               &types.IamInstanceProfileSpecification{Name: optional(spec.IAM.Name), Arn: optional(spec.IAM.ARN)},
		KeyName:                          optional(sdk.ToString(spec.KeyName)),
		BlockDeviceMappings:              blockDevices(spec.BlockDevices, rootDevice),
		NetworkInterfaces:                networkInterfaces(spec.NetworkInterfaces),
		TagSpecifications:                tagSpecifications(spec, target),
		CapacityReservationSpecification: capacityReservation(spec.CapacityReservation),
		InstanceMarketOptions:            marketOptions(spec),
		Placement:                        placementInput(placement),
	}
	if spec.EbsOptimized {
		in.EbsOptimized = sdk.Bool(true)
	}
	if spec.Monitoring {
		in.Monitoring = &types.RunInstancesMonitoringEnabled{Enabled: sdk.Bool(true)}
	}
	if o := spec.InstanceMetadataOptions; o != nil {
		in.MetadataOptions = &types.InstanceMetadataOptionsRequest{
			HttpEndpoint: types.InstanceMetadataEndpointState(o.HTTPEndpoint), HttpPutResponseHopLimit: o.HTTPPutResponseHopLimit,
			HttpTokens: types.HttpTokensState(o.HTTPTokens), HttpProtocolIpv6: types.InstanceMetadataProtocolState(o.HTTPProtocolIPv6),
		}
	}
	if o := spec.CPUOptions; o != nil {
		in.CpuOptions = &types.CpuOptionsRequest{
			CoreCount: o.CoreCount, ThreadsPerCore: o.ThreadsPerCore, AmdSevSnp: types.AmdSevSnpSpecification(sdk.ToString(o.AMDSEVSNP)),
		}
	}
	return in
}

// optional returns nil for "".
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// orTrue returns a setting whose default is true.
func orTrue(setting *bool) *bool {
	if setting == nil {
		return sdk.Bool(true)
	}
	return setting
}

func blockDevices(devices []BlockDevice, rootDevice string) (list []types.BlockDeviceMapping) {
	for _, d := range devices {
		name := d.DeviceName
		if name == RootDeviceName || len(devices) == 1 {
			name = rootDevice
		}
		volume := &types.EbsBlockDevice{
			DeleteOnTermination: orTrue(d.EBS.DeleteOnTermination), Encrypted: sdk.Bool(d.EBS.Encrypted), KmsKeyId: d.EBS.KMSKeyID,
			SnapshotId: d.EBS.SnapshotID, Throughput: d.EBS.Throughput, VolumeSize: sdk.Int32(d.EBS.VolumeSize),
			VolumeType: types.VolumeType(d.EBS.VolumeType),
		}
		if d.EBS.IOPS > 0 {
			volume.Iops = sdk.Int32(d.EBS.IOPS)
		}
		list = append(list, types.BlockDeviceMapping{DeviceName: sdk.String(name), Ebs: volume})
	}
	return list
}

func networkInterfaces(interfaces []NetworkInterface) (list []types.InstanceNetworkInterfaceSpecification) {
	for i, n := range interfaces {
		nic := types.InstanceNetworkInterfaceSpecification{
			SubnetId: sdk.String(n.SubnetID), Groups: n.SecurityGroupIDs, DeviceIndex: n.DeviceIndex, NetworkCardIndex: n.NetworkCardIndex,
			AssociatePublicIpAddress: n.AssociatePublicIPAddress, DeleteOnTermination: orTrue(n.DeleteOnTermination), Description: n.Description,
			Ipv6AddressCount: n.IPv6AddressCount, PrimaryIpv6: n.PrimaryIPv6, InterfaceType: n.InterfaceType,
		}
		if nic.DeviceIndex == nil {
			nic.DeviceIndex = sdk.Int32(int32(i))
		}
		list = append(list, nic)
	}
	return list
}

// tagSpecifications returns the tags of what the request creates. What is kept when the instance
// ends is no left-over, and does not have the tags of the fleet.
func tagSpecifications(spec ProviderSpec, target driver.Target) []types.TagSpecification {
	own, all := specTags(spec, target.Machine.Name), specTags(spec, target.Machine.Name)
	maps.Copy(all, fleetTags(target))
	volumes, nics := all, all
	if slices.ContainsFunc(spec.BlockDevices, func(d BlockDevice) bool { return !*orTrue(d.EBS.DeleteOnTermination) }) {
		volumes = own
	}
	if slices.ContainsFunc(spec.NetworkInterfaces, func(n NetworkInterface) bool { return !*orTrue(n.DeleteOnTermination) }) {
		nics = own
	}
	return []types.TagSpecification{
		{ResourceType: types.ResourceTypeInstance, Tags: toTags(all)},
		{ResourceType: types.ResourceTypeVolume, Tags: toTags(volumes)},
		{ResourceType: types.ResourceTypeNetworkInterface, Tags: toTags(nics)},
	}
}

func capacityReservation(r *CapacityReservation) *types.CapacityReservationSpecification {
	switch {
	case r == nil:
		return nil
	case r.Preference != "":
		return &types.CapacityReservationSpecification{CapacityReservationPreference: types.CapacityReservationPreference(r.Preference)}
	case r.ID != nil || r.ResourceGroupARN != nil:
		return &types.CapacityReservationSpecification{CapacityReservationTarget: &types.CapacityReservationTarget{
			CapacityReservationId: r.ID, CapacityReservationResourceGroupArn: r.ResourceGroupARN,
		}}
	}
	return nil
}

func marketOptions(spec ProviderSpec) *types.InstanceMarketOptionsRequest {
	if r := spec.CapacityReservation; r != nil && r.IsMLCapacityBlock != nil && *r.IsMLCapacityBlock {
		return &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeCapacityBlock}
	}
	if spec.SpotPrice == nil {
		return nil
	}
	return &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot, SpotOptions: &types.SpotMarketOptions{
		SpotInstanceType: types.SpotInstanceTypeOneTime, MaxPrice: optional(*spec.SpotPrice),
	}}
}

func placementInput(p *Placement) *types.Placement {
	if p == nil {
		return nil
	}
	return &types.Placement{
		GroupId: p.GroupID, GroupName: p.GroupName, Tenancy: types.Tenancy(sdk.ToString(p.Tenancy)), HostId: p.HostID,
		HostResourceGroupArn: p.HostResourceGroupARN, PartitionNumber: p.PartitionNumber, Affinity: p.Affinity,
		AvailabilityZone: p.AvailabilityZone, SpreadDomain: p.SpreadDomain,
	}
}
