package azure

// ProviderSpec is MachineClass.providerSpec for Azure. It has the fields of Machine Controller
// Manager's provider for Azure, so that a MachineClass that was written for it works without a
// change, but for those that have no effect there: as all fields that are not listed they are
// ignored, and reported, see driver.UnknownFields. Fields without a comment are passed to the cloud
// as they are.
type ProviderSpec struct {
	Location           string              `json:"location,omitempty"`
	ResourceGroup      string              `json:"resourceGroup,omitempty"`
	Tags               map[string]string   `json:"tags,omitempty"`
	SubnetInfo         SubnetInfo          `json:"subnetInfo"`
	Properties         Properties          `json:"properties"`
	CloudConfiguration *CloudConfiguration `json:"cloudConfiguration,omitempty"`
}

// CloudConfiguration selects the cloud: AzurePublic, AzureGovernment or AzureChina. Without it the
// cloud is AzurePublic.
type CloudConfiguration struct {
	Name string `json:"name"`
}

// SubnetInfo is the subnet of the network interface.
type SubnetInfo struct {
	VnetName string `json:"vnetName,omitempty"`
	// VnetResourceGroup is the resource group of the virtual network; without it that of the VM.
	VnetResourceGroup *string `json:"vnetResourceGroup,omitempty"`
	SubnetName        string  `json:"subnetName,omitempty"`
}

// Properties describe the VM. Exactly one of Zone, AvailabilitySet and VirtualMachineScaleSet is
// set.
type Properties struct {
	HardwareProfile        HardwareProfile `json:"hardwareProfile"`
	StorageProfile         StorageProfile  `json:"storageProfile"`
	OSProfile              OSProfile       `json:"osProfile"`
	NetworkProfile         NetworkProfile  `json:"networkProfile"`
	Zone                   *int            `json:"zone,omitempty"`
	AvailabilitySet        *SubResource    `json:"availabilitySet,omitempty"`
	VirtualMachineScaleSet *SubResource    `json:"virtualMachineScaleSet,omitempty"`
	// MachineSet is deprecated: it is translated to AvailabilitySet or VirtualMachineScaleSet when the
	// spec is read.
	MachineSet *MachineSet `json:"machineSet,omitempty"`
	// IdentityID is the resource ID of the identity that is assigned to the VM.
	IdentityID          *string              `json:"identityID,omitempty"`
	DiagnosticsProfile  *DiagnosticsProfile  `json:"diagnosticsProfile,omitempty"`
	SecurityProfile     *SecurityProfile     `json:"securityProfile,omitempty"`
	CapacityReservation *CapacityReservation `json:"capacityReservation,omitempty"`
}

// HardwareProfile is the size of the VM.
type HardwareProfile struct {
	VMSize string `json:"vmSize,omitempty"`
}

// StorageProfile is the image and the disks.
type StorageProfile struct {
	ImageReference ImageReference `json:"imageReference"`
	// DiskControllerType is SCSI or NVMe; without it the cloud chooses.
	DiskControllerType string     `json:"diskControllerType,omitempty"`
	OSDisk             OSDisk     `json:"osDisk"`
	DataDisks          []DataDisk `json:"dataDisks,omitempty"`
}

// ImageReference names an image, by exactly one of ID, URN, CommunityGalleryImageID and
// SharedGalleryImageID.
type ImageReference struct {
	ID string `json:"id,omitempty"`
	// URN is publisher:offer:sku:version.
	URN *string `json:"urn,omitempty"`
	// SkipMarketplaceAgreement leaves out the search for a plan of the URN and the acceptance of its
	// agreement.
	SkipMarketplaceAgreement bool    `json:"skipMarketplaceAgreement,omitempty"`
	CommunityGalleryImageID  *string `json:"communityGalleryImageID,omitempty"`
	SharedGalleryImageID     *string `json:"sharedGalleryImageID,omitempty"`
}

// OSDisk is the disk that the VM boots from.
type OSDisk struct {
	Caching      string      `json:"caching,omitempty"`
	ManagedDisk  ManagedDisk `json:"managedDisk"`
	DiskSizeGB   int32       `json:"diskSizeGB,omitempty"`
	CreateOption string      `json:"createOption,omitempty"`
}

// ManagedDisk are the parameters of the managed disk that an OSDisk is.
type ManagedDisk struct {
	StorageAccountType string               `json:"storageAccountType,omitempty"`
	SecurityProfile    *DiskSecurityProfile `json:"securityProfile,omitempty"`
}

// DiskSecurityProfile is the encryption of the OS disk of a confidential VM.
type DiskSecurityProfile struct {
	SecurityEncryptionType *string `json:"securityEncryptionType,omitempty"`
}

// DataDisk is a disk that is created and removed with the VM. One with an ImageRef is created from
// that image, before the VM.
type DataDisk struct {
	Name               string          `json:"name,omitempty"`
	Lun                int32           `json:"lun"`
	Caching            string          `json:"caching,omitempty"`
	StorageAccountType string          `json:"storageAccountType,omitempty"`
	DiskSizeGB         int32           `json:"diskSizeGB,omitempty"`
	ImageRef           *ImageReference `json:"imageRef,omitempty"`
}

// OSProfile contains what is set in the operating system. The computer has the name of the VM, no
// password can be used, and the custom data is the user data.
type OSProfile struct {
	AdminUsername      string             `json:"adminUsername,omitempty"`
	LinuxConfiguration LinuxConfiguration `json:"linuxConfiguration"`
}

// LinuxConfiguration is how users log in.
type LinuxConfiguration struct {
	DisablePasswordAuthentication bool `json:"disablePasswordAuthentication,omitempty"`
	SSH                           SSH  `json:"ssh"`
}

// SSH has the public key of the administrator.
type SSH struct {
	PublicKeys SSHPublicKey `json:"publicKeys"`
}

// SSHPublicKey is a public key, and the file in the VM in which it is written. Without KeyData the
// cloud, which requires a key, gets one whose private key no one has.
type SSHPublicKey struct {
	Path    string `json:"path,omitempty"`
	KeyData string `json:"keyData,omitempty"`
}

// NetworkProfile is about the network interface.
type NetworkProfile struct {
	AcceleratedNetworking *bool `json:"acceleratedNetworking,omitempty"`
}

// SubResource is the resource ID of another resource.
type SubResource struct {
	ID string `json:"id,omitempty"`
}

// MachineSet is the deprecated form of AvailabilitySet (kind availabilityset) and
// VirtualMachineScaleSet (kind vmo).
type MachineSet struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
}

// DiagnosticsProfile is about boot diagnostics. Without a StorageURI they are kept in a storage
// account of the cloud.
type DiagnosticsProfile struct {
	Enabled    bool    `json:"enabled,omitempty"`
	StorageURI *string `json:"storageURI,omitempty"`
}

// SecurityProfile is about trusted launch and confidential VMs.
type SecurityProfile struct {
	SecurityType *string       `json:"securityType,omitempty"`
	UEFISettings *UEFISettings `json:"uefiSettings,omitempty"`
}

// UEFISettings are those of the firmware.
type UEFISettings struct {
	VTPMEnabled       *bool `json:"vtpmEnabled,omitempty"`
	SecureBootEnabled *bool `json:"secureBootEnabled,omitempty"`
}

// CapacityReservation is the group of capacity reservations that the VM uses.
type CapacityReservation struct {
	CapacityReservationGroupID *string `json:"capacityReservationGroupID,omitempty"`
}
