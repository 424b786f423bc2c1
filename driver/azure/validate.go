package azure

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// clusterTag and roleTag begin the keys of tags that each VM has.
	clusterTag = "kubernetes.io-cluster-"
	roleTag    = "kubernetes.io-role-"
	// maxTags is how many tags a resource has at most; some of them are the driver's.
	maxTags = 50
	// maxTagKey and maxTagValue are how many bytes keys and values of tags have at most.
	maxTagKey, maxTagValue = 512, 256
)

// validate returns what is wrong with a provider spec, apart from a deprecated MachineSet.
func validate(spec ProviderSpec) field.ErrorList {
	at := field.NewPath("providerSpec")
	return slices.Concat(
		required(at.Child("location"), spec.Location),
		validateResourceGroup(at.Child("resourceGroup"), spec.ResourceGroup),
		required(at.Child("subnetInfo", "vnetName"), spec.SubnetInfo.VnetName),
		required(at.Child("subnetInfo", "subnetName"), spec.SubnetInfo.SubnetName),
		validateProperties(at.Child("properties"), spec.Properties),
		validateTags(at.Child("tags"), spec.Tags),
		validateCloud(at.Child("cloudConfiguration"), spec.CloudConfiguration),
	)
}

// required returns an error for a text without content.
func required(at *field.Path, text string) field.ErrorList {
	if strings.TrimSpace(text) == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return nil
}

// oneOf returns an error for a text that is none of the values of an enumeration; nil and "" are
// accepted.
func oneOf[T ~string](at *field.Path, text *string, values []T) field.ErrorList {
	if text == nil || *text == "" || slices.Contains(values, T(*text)) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, T(*text), values)}
}

// validateResourceGroup returns what is wrong with the name of a resource group, which becomes a
// part of paths.
func validateResourceGroup(at *field.Path, name string) field.ErrorList {
	if errs := required(at, name); errs != nil {
		return errs
	}
	if !isName(name) {
		return field.ErrorList{field.Invalid(at, name, "expected at most 90 letters, digits, and _ - . ( )")}
	}
	return nil
}

func validateProperties(at *field.Path, p Properties) field.ErrorList {
	storage := at.Child("storageProfile")
	errs := slices.Concat(
		required(at.Child("hardwareProfile", "vmSize"), p.HardwareProfile.VMSize),
		validateImage(storage.Child("imageReference"), p.StorageProfile.ImageReference),
		oneOf(storage.Child("diskControllerType"), &p.StorageProfile.DiskControllerType, armcompute.PossibleDiskControllerTypesValues()),
		validateOSDisk(storage.Child("osDisk"), p.StorageProfile.OSDisk),
		validateDataDisks(storage.Child("dataDisks"), p.StorageProfile.DataDisks),
		required(at.Child("osProfile", "adminUsername"), p.OSProfile.AdminUsername),
		validatePlacement(at, p),
		validateReservation(at.Child("capacityReservation", "capacityReservationGroupID"), p.CapacityReservation),
	)
	if p.SecurityProfile != nil {
		errs = append(errs,
			oneOf(at.Child("securityProfile", "securityType"), p.SecurityProfile.SecurityType, armcompute.PossibleSecurityTypesValues())...)
	}
	return errs
}

// validateImage returns what is wrong with the name of an image.
func validateImage(at *field.Path, image ImageReference) field.ErrorList {
	given := 0
	for _, name := range []string{image.ID, value(image.URN), value(image.CommunityGalleryImageID), value(image.SharedGalleryImageID)} {
		if strings.TrimSpace(name) != "" {
			given++
		}
	}
	if given != 1 {
		return field.ErrorList{
			field.Forbidden(at, fmt.Sprintf("%d of id, urn, communityGalleryImageID and sharedGalleryImageID are set; expected exactly one", given)),
		}
	}
	urn := value(image.URN)
	if urn == "" {
		return nil
	}
	parts := strings.Split(urn, ":")
	if len(parts) != 4 || slices.ContainsFunc(parts, func(part string) bool { return strings.TrimSpace(part) == "" }) {
		return field.ErrorList{field.Invalid(at.Child("urn"), urn, "expected publisher:offer:sku:version")}
	}
	return nil
}

func validateOSDisk(at *field.Path, disk OSDisk) field.ErrorList {
	errs := slices.Concat(required(at.Child("createOption"), disk.CreateOption), validateSize(at, disk.DiskSizeGB))
	if profile := disk.ManagedDisk.SecurityProfile; profile != nil {
		errs = append(errs, oneOf(at.Child("managedDisk", "securityProfile", "securityEncryptionType"), profile.SecurityEncryptionType,
			armcompute.PossibleSecurityEncryptionTypesValues())...)
	}
	return errs
}

func validateSize(disk *field.Path, size int32) field.ErrorList {
	if size <= 0 {
		return field.ErrorList{field.Invalid(disk.Child("diskSizeGB"), size, "expected a positive number")}
	}
	return nil
}

func validateDataDisks(at *field.Path, disks []DataDisk) (errs field.ErrorList) {
	luns := map[int32]bool{}
	for i, disk := range disks {
		at := at.Index(i)
		switch {
		case disk.Lun < 0:
			errs = append(errs, field.Invalid(at.Child("lun"), disk.Lun, "expected 0 or a positive number"))
		case luns[disk.Lun]:
			errs = append(errs, field.Duplicate(at.Child("lun"), disk.Lun))
		}
		luns[disk.Lun] = true
		if disk.Name != "" && !isName(disk.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), disk.Name, "expected letters, digits, and _ - ."))
		}
		errs = append(errs, validateSize(at, disk.DiskSizeGB)...)
		errs = append(errs, required(at.Child("storageAccountType"), disk.StorageAccountType)...)
		if disk.ImageRef != nil {
			errs = append(errs, validateImage(at.Child("imageRef"), *disk.ImageRef)...)
		}
	}
	return errs
}

// validatePlacement returns an error unless exactly one of zone, availability set and scale set is
// given.
func validatePlacement(at *field.Path, p Properties) field.ErrorList {
	given := 0
	for _, set := range []bool{
		p.Zone != nil, p.AvailabilitySet != nil && p.AvailabilitySet.ID != "",
		p.VirtualMachineScaleSet != nil && p.VirtualMachineScaleSet.ID != "",
	} {
		if set {
			given++
		}
	}
	if given != 1 {
		return field.ErrorList{
			field.Forbidden(at, fmt.Sprintf("%d of zone, availabilitySet and virtualMachineScaleSet are set; expected exactly one", given)),
		}
	}
	return nil
}

func validateReservation(at *field.Path, reservation *CapacityReservation) field.ErrorList {
	if reservation == nil || reservation.CapacityReservationGroupID == nil {
		return nil
	}
	group := *reservation.CapacityReservationGroupID
	const kind = "capacityReservationGroups"
	if id, err := arm.ParseResourceID(group); err != nil || !strings.EqualFold(id.ResourceType.Type, kind) {
		return field.ErrorList{field.Invalid(at, group, "expected the resource ID of one of Microsoft.Compute/"+kind)}
	}
	return nil
}

// validateTags returns what is wrong with tags. Their keys are not case-sensitive.
func validateTags(at *field.Path, tags map[string]string) (errs field.ErrorList) {
	for _, prefix := range []string{clusterTag, roleTag} {
		if _, ok := tagWith(tags, prefix); !ok {
			errs = append(errs, field.Required(at, "a key that begins with "+prefix))
		}
	}
	if most := maxTags - len(ownTags()); len(tags) > most {
		errs = append(errs, field.TooMany(at, len(tags), most))
	}
	seen := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		lower := strings.ToLower(key)
		switch {
		case slices.Contains(ownTags(), lower):
			errs = append(errs, field.Forbidden(at.Key(key), "the driver sets it; choose another key"))
		case seen[lower]:
			errs = append(errs, field.Duplicate(at.Key(key), key))
		case key == "" || len(key) > maxTagKey || strings.ContainsAny(key, `<>%&\?/`):
			errs = append(errs, field.Invalid(at.Key(key), key, fmt.Sprintf(`expected 1 to %d characters without < > %% & \ ? /`, maxTagKey)))
		case len(tags[key]) > maxTagValue:
			errs = append(errs, field.TooLong(at.Key(key), "", maxTagValue))
		}
		seen[lower] = true
	}
	return errs
}

func validateCloud(at *field.Path, cloud *CloudConfiguration) field.ErrorList {
	if cloud == nil {
		return nil
	}
	if names := []string{cloudPublic, cloudGovernment, cloudChina}; !slices.Contains(names, cloud.Name) {
		return field.ErrorList{field.NotSupported(at.Child("name"), cloud.Name, names)}
	}
	return nil
}

// value returns what a pointer refers to, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
