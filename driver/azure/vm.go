package azure

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"
)

// parts are the resources that a VM is built from.
type parts struct {
	spec      ProviderSpec
	vm, nic   resourceID
	plan      *armcompute.Plan
	sshKey    string
	userData  []byte
	dataDisks map[int32]resourceID // those that were created from images, by LUN
	tags      map[string]*string
}

// newVM returns the request for a VM. Its network interface and disks are deleted with it.
func newVM(p parts) armcompute.VirtualMachine {
	spec := p.spec.Properties
	vm := armcompute.VirtualMachine{
		Location: &p.spec.Location,
		Plan:     p.plan,
		Tags:     p.tags,
		Zones:    zones(spec.Zone),
		Properties: &armcompute.VirtualMachineProperties{
			HardwareProfile: &armcompute.HardwareProfile{VMSize: new(armcompute.VirtualMachineSizeTypes(spec.HardwareProfile.VMSize))},
			NetworkProfile: &armcompute.NetworkProfile{NetworkInterfaces: []*armcompute.NetworkInterfaceReference{{
				ID: new(p.nic.String()),
				Properties: &armcompute.NetworkInterfaceReferenceProperties{
					Primary: new(true), DeleteOption: new(armcompute.DeleteOptionsDelete),
				},
			}}},
			OSProfile: &armcompute.OSProfile{
				ComputerName: &p.vm.name, AdminUsername: &spec.OSProfile.AdminUsername,
				CustomData: new(base64.StdEncoding.EncodeToString(p.userData)),
				LinuxConfiguration: &armcompute.LinuxConfiguration{
					DisablePasswordAuthentication: &spec.OSProfile.LinuxConfiguration.DisablePasswordAuthentication,
					SSH: &armcompute.SSHConfiguration{PublicKeys: []*armcompute.SSHPublicKey{{
						KeyData: &p.sshKey, Path: optional(spec.OSProfile.LinuxConfiguration.SSH.PublicKeys.Path),
					}}},
				},
			},
			StorageProfile: &armcompute.StorageProfile{
				ImageReference: imageOf(spec.StorageProfile.ImageReference), OSDisk: newOSDisk(p), DataDisks: newDataDisks(p),
				DiskControllerType: optional(armcompute.DiskControllerTypes(spec.StorageProfile.DiskControllerType)),
			},
			AvailabilitySet:        subResource(spec.AvailabilitySet),
			VirtualMachineScaleSet: subResource(spec.VirtualMachineScaleSet),
		},
	}
	if identity := value(spec.IdentityID); identity != "" {
		vm.Identity = &armcompute.VirtualMachineIdentity{
			Type:                   new(armcompute.ResourceIdentityTypeUserAssigned),
			UserAssignedIdentities: map[string]*armcompute.UserAssignedIdentitiesValue{identity: {}},
		}
	}
	if diagnostics := spec.DiagnosticsProfile; diagnostics != nil {
		vm.Properties.DiagnosticsProfile = &armcompute.DiagnosticsProfile{
			BootDiagnostics: &armcompute.BootDiagnostics{Enabled: &diagnostics.Enabled, StorageURI: diagnostics.StorageURI},
		}
	}
	if security := spec.SecurityProfile; security != nil {
		vm.Properties.SecurityProfile = &armcompute.SecurityProfile{
			SecurityType: optional(armcompute.SecurityTypes(value(security.SecurityType))),
		}
		if uefi := security.UEFISettings; uefi != nil {
			vm.Properties.SecurityProfile.UefiSettings = &armcompute.UefiSettings{
				VTpmEnabled: uefi.VTPMEnabled, SecureBootEnabled: uefi.SecureBootEnabled,
			}
		}
	}
	if reservation := spec.CapacityReservation; reservation != nil && reservation.CapacityReservationGroupID != nil {
		vm.Properties.CapacityReservation = &armcompute.CapacityReservationProfile{
			CapacityReservationGroup: &armcompute.SubResource{ID: reservation.CapacityReservationGroupID},
		}
	}
	return vm
}

func newOSDisk(p parts) *armcompute.OSDisk {
	spec := p.spec.Properties.StorageProfile.OSDisk
	disk := &armcompute.OSDisk{
		Name: new(osDiskName(p.vm.name)), DiskSizeGB: &spec.DiskSizeGB,
		CreateOption: new(armcompute.DiskCreateOptionTypes(spec.CreateOption)), DeleteOption: new(armcompute.DiskDeleteOptionTypesDelete),
		Caching: optional(armcompute.CachingTypes(spec.Caching)),
		ManagedDisk: &armcompute.ManagedDiskParameters{
			StorageAccountType: optional(armcompute.StorageAccountTypes(spec.ManagedDisk.StorageAccountType)),
		},
	}
	if security := spec.ManagedDisk.SecurityProfile; security != nil {
		disk.ManagedDisk.SecurityProfile = &armcompute.VMDiskSecurityProfile{
			SecurityEncryptionType: optional(armcompute.SecurityEncryptionTypes(value(security.SecurityEncryptionType))),
		}
	}
	return disk
}

func newDataDisks(p parts) (disks []*armcompute.DataDisk) {
	for _, spec := range p.spec.Properties.StorageProfile.DataDisks {
		caching := armcompute.CachingTypes(spec.Caching)
		if caching == "" {
			caching = armcompute.CachingTypesNone
		}
		disk := &armcompute.DataDisk{
			Name: new(dataDiskName(p.vm.name, spec)), Lun: &spec.Lun, DiskSizeGB: &spec.DiskSizeGB, Caching: &caching,
			CreateOption: new(armcompute.DiskCreateOptionTypesEmpty), DeleteOption: new(armcompute.DiskDeleteOptionTypesDelete),
			ManagedDisk: &armcompute.ManagedDiskParameters{StorageAccountType: new(armcompute.StorageAccountTypes(spec.StorageAccountType))},
		}
		if created, ok := p.dataDisks[spec.Lun]; ok {
			disk.CreateOption, disk.ManagedDisk.ID = new(armcompute.DiskCreateOptionTypesAttach), new(created.String())
		}
		disks = append(disks, disk)
	}
	return disks
}

// newNIC returns the request for a network interface.
func newNIC(name, subnet string, spec ProviderSpec, tags map[string]*string) armnetwork.Interface {
	return armnetwork.Interface{
		Location: &spec.Location,
		Tags:     tags,
		Properties: &armnetwork.InterfacePropertiesFormat{
			EnableAcceleratedNetworking: spec.Properties.NetworkProfile.AcceleratedNetworking,
			EnableIPForwarding:          new(true), // pods have their own addresses
			NicType:                     new(armnetwork.NetworkInterfaceNicTypeStandard),
			IPConfigurations: []*armnetwork.InterfaceIPConfiguration{{
				Name: &name,
				Properties: &armnetwork.InterfaceIPConfigurationPropertiesFormat{
					PrivateIPAllocationMethod: new(armnetwork.IPAllocationMethodDynamic),
					Subnet:                    &armnetwork.Subnet{ID: &subnet},
				},
			}},
		},
	}
}

// newDisk returns the request for a data disk that is created from an image. imageID is the ID of
// the image that a URN names.
func newDisk(spec ProviderSpec, disk DataDisk, imageID string, tags map[string]*string) armcompute.Disk {
	data := &armcompute.CreationData{CreateOption: new(armcompute.DiskCreateOptionFromImage)}
	switch image := disk.ImageRef; {
	case value(image.SharedGalleryImageID) != "":
		data.GalleryImageReference = &armcompute.ImageDiskReference{SharedGalleryImageID: image.SharedGalleryImageID}
	case value(image.CommunityGalleryImageID) != "":
		data.GalleryImageReference = &armcompute.ImageDiskReference{CommunityGalleryImageID: image.CommunityGalleryImageID}
	case image.ID != "":
		data.ImageReference = &armcompute.ImageDiskReference{ID: &image.ID}
	default:
		data.ImageReference = &armcompute.ImageDiskReference{ID: &imageID}
	}
	return armcompute.Disk{
		Location: &spec.Location, Tags: tags, Zones: zones(spec.Properties.Zone),
		SKU: &armcompute.DiskSKU{Name: new(armcompute.DiskStorageAccountTypes(disk.StorageAccountType))},
		Properties: &armcompute.DiskProperties{
			CreationData: data, DiskSizeGB: &disk.DiskSizeGB, OSType: new(armcompute.OperatingSystemTypesLinux),
		},
	}
}

func imageOf(image ImageReference) *armcompute.ImageReference {
	if parts := strings.Split(value(image.URN), ":"); len(parts) == 4 {
		return &armcompute.ImageReference{Publisher: &parts[0], Offer: &parts[1], SKU: &parts[2], Version: &parts[3]}
	}
	return &armcompute.ImageReference{
		ID: optional(image.ID), CommunityGalleryImageID: optional(value(image.CommunityGalleryImageID)),
		SharedGalleryImageID: optional(value(image.SharedGalleryImageID)),
	}
}

func zones(zone *int) []*string {
	if zone == nil {
		return nil
	}
	return []*string{new(strconv.Itoa(*zone))}
}

func subResource(r *SubResource) *armcompute.SubResource {
	if r == nil || r.ID == "" {
		return nil
	}
	return &armcompute.SubResource{ID: &r.ID}
}

// optional returns a pointer to a text, and nil for an empty one.
func optional[T ~string](text T) *T {
	if text == "" {
		return nil
	}
	return &text
}

// uselessSSHKey returns a public key whose private key is forgotten: the cloud creates no VM
// without a key or a password.
func uselessSSHKey() (string, error) {
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", err
	}
	const name = "ssh-ed25519"
	var wire []byte // RFC 8709, section 4
	for _, part := range [][]byte{[]byte(name), public} {
		wire = binary.BigEndian.AppendUint32(wire, uint32(len(part)))
		wire = append(wire, part...)
	}
	return name + " " + base64.StdEncoding.EncodeToString(wire), nil
}
