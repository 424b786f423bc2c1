package aws

import "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"

// ProviderSpec is MachineClass.providerSpec for AWS: the fields of Machine Controller Manager's
// driver, with their names and meaning. Fields that are not listed are ignored, as they are there,
// and reported, see driver.UnknownFields.
type ProviderSpec struct {
	APIVersion string `json:"apiVersion,omitempty"`
	// AMI is the ID of the image. Required.
	AMI string `json:"ami,omitempty"`
	// Region of the subnets. Required. It becomes a part of host names.
	Region string `json:"region,omitempty"`
	// MachineType is the instance type. Required.
	MachineType string `json:"machineType,omitempty"`
	// IAM is the instance profile. Required.
	IAM IAMProfile `json:"iam"`
	// KeyName is the name of an SSH key pair; nil or "" for none.
	KeyName *string `json:"keyName,omitempty"`
	// BlockDevices; none means what the image has.
	BlockDevices []BlockDevice `json:"blockDevices,omitempty"`
	// NetworkInterfaces, at least one.
	NetworkInterfaces []NetworkInterface `json:"networkInterfaces,omitempty"`
	// Tags of instance, volumes and network interfaces. One key with ClusterTagPrefix and one with
	// RoleTagPrefix are required. The tag Name is ignored: it is the Machine's name.
	Tags map[string]string `json:"tags,omitempty"`

	EbsOptimized bool `json:"ebsOptimized,omitempty"`
	// Monitoring enables detailed monitoring.
	Monitoring bool `json:"monitoring,omitempty"`
	// SpotPrice requests a spot instance; "" sets no highest price.
	SpotPrice *string `json:"spotPrice,omitempty"`
	// SrcAndDstChecksEnabled as false is set after the create, by InitializeMachine. EC2's default is
	// true.
	SrcAndDstChecksEnabled  *bool                `json:"srcAndDstChecksEnabled,omitempty"`
	CapacityReservation     *CapacityReservation `json:"capacityReservation,omitempty"`
	InstanceMetadataOptions *MetadataOptions     `json:"instanceMetadataOptions,omitempty"`
	CPUOptions              *CPUOptions          `json:"cpuOptions,omitempty"`
	// Placement wins over the Machine's annotation AnnotationPlacement.
	Placement *Placement `json:"placement,omitempty"`
}

// IAMProfile is an instance profile, by exactly one of its fields.
type IAMProfile struct {
	ARN  string `json:"arn,omitempty"`
	Name string `json:"name,omitempty"`
}

// RootDeviceName stands for the root device of the image, regardless of what its name is.
const RootDeviceName = "/root"

// BlockDevice is a volume. The name of a single one does not matter: it is the root device.
type BlockDevice struct {
	// DeviceName is RootDeviceName, or a name such as /dev/sdf.
	DeviceName string `json:"deviceName,omitempty"`
	EBS        EBS    `json:"ebs"`
}

// EBS describes a volume.
type EBS struct {
	// DeleteOnTermination deletes the volume with its instance. Default: true.
	DeleteOnTermination *bool   `json:"deleteOnTermination,omitempty"`
	Encrypted           bool    `json:"encrypted,omitempty"`
	KMSKeyID            *string `json:"kmsKeyID,omitempty"`
	SnapshotID          *string `json:"snapshotID,omitempty"`
	// IOPS is required for io1 and io2; 0 means EC2's default.
	IOPS int32 `json:"iops,omitempty"`
	// Throughput in MiB/s, of gp3.
	Throughput *int32 `json:"throughput,omitempty"`
	// VolumeSize in GiB. Required.
	VolumeSize int32 `json:"volumeSize,omitempty"`
	// VolumeType is one of volumeTypes. Required.
	VolumeType string `json:"volumeType,omitempty"`
}

// NetworkInterface describes a network interface.
type NetworkInterface struct {
	// SubnetID is required, and so is at least one of SecurityGroupIDs.
	SubnetID                 string   `json:"subnetID,omitempty"`
	SecurityGroupIDs         []string `json:"securityGroupIDs,omitempty"`
	AssociatePublicIPAddress *bool    `json:"associatePublicIPAddress,omitempty"`
	// DeleteOnTermination deletes the interface with its instance. Default: true.
	DeleteOnTermination *bool   `json:"deleteOnTermination,omitempty"`
	Description         *string `json:"description,omitempty"`
	IPv6AddressCount    *int32  `json:"ipv6AddressCount,omitempty"`
	// IPv6PrefixCount prefixes are assigned after the create, by InitializeMachine.
	IPv6PrefixCount *int32 `json:"ipv6PrefixCount,omitempty"`
	PrimaryIPv6     *bool  `json:"primaryIpv6,omitempty"`
	// InterfaceType is one of interfaceTypes. Default: EC2's, "interface".
	InterfaceType    *string `json:"interfaceType,omitempty"`
	NetworkCardIndex *int32  `json:"networkCardIndex,omitempty"`
	// DeviceIndex. Default: the index in the list.
	DeviceIndex *int32 `json:"deviceIndex,omitempty"`
}

// CapacityReservation selects a capacity reservation, by at most one of the first three fields.
type CapacityReservation struct {
	Preference       string  `json:"capacityReservationPreference,omitempty"`
	ID               *string `json:"capacityReservationId,omitempty"`
	ResourceGroupARN *string `json:"capacityReservationResourceGroupArn,omitempty"`
	// IsMLCapacityBlock is true for a capacity block for machine learning.
	IsMLCapacityBlock *bool `json:"isMLCapacityBlock,omitempty"`
}

// MetadataOptions configure the instance metadata service.
type MetadataOptions struct {
	HTTPEndpoint            string `json:"httpEndpoint,omitempty"`
	HTTPPutResponseHopLimit *int32 `json:"httpPutResponseHopLimit,omitempty"`
	HTTPTokens              string `json:"httpTokens,omitempty"`
	HTTPProtocolIPv6        string `json:"httpProtocolIpv6,omitempty"`
}

// CPUOptions are the cores and threads of an instance.
type CPUOptions struct {
	CoreCount      *int32  `json:"coreCount"`
	ThreadsPerCore *int32  `json:"threadsPerCore"`
	AMDSEVSNP      *string `json:"amdSevSnp,omitempty"`
}

// AnnotationPlacement is a Placement: where the instance runs.
//
// On: spec.nodeTemplate of Machines. By: user. Value: JSON. See: drivers/aws.md.
const AnnotationPlacement = v1alpha1.GroupName + "/awsPlacement"

// Placement is where an instance runs.
type Placement struct {
	GroupID              *string `json:"groupId,omitempty"`
	GroupName            *string `json:"groupName,omitempty"`
	Tenancy              *string `json:"tenancy,omitempty"`
	HostID               *string `json:"hostId,omitempty"`
	HostResourceGroupARN *string `json:"hostResourceGroupArn,omitempty"`
	PartitionNumber      *int32  `json:"partitionNumber,omitempty"`
	Affinity             *string `json:"affinity,omitempty"`
	AvailabilityZone     *string `json:"availabilityZone,omitempty"`
	SpreadDomain         *string `json:"spreadDomain,omitempty"`
}
