package aws

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// volumeTypes are the types of volumes. Machine Controller Manager has no io2.
func volumeTypes() []string { return []string{"gp2", "gp3", "io1", "io2", "sc1", "st1", "standard"} }

// interfaceTypes are the types of network interfaces that RunInstances creates.
func interfaceTypes() []string { return []string{"interface", "efa", "efa-only"} }

// maxHopLimit is the highest hop limit of the instance metadata service.
const maxHopLimit = 64

// validate returns what is wrong with a provider spec.
func validate(spec ProviderSpec, path *field.Path) (errs field.ErrorList) {
	if spec.AMI == "" {
		errs = append(errs, field.Required(path.Child("ami"), "the ID of an image"))
	}
	if !isRegion(spec.Region) {
		errs = append(errs, field.Invalid(path.Child("region"), spec.Region, "expected a region such as eu-west-1"))
	}
	if spec.MachineType == "" {
		errs = append(errs, field.Required(path.Child("machineType"), "an instance type"))
	}
	if (spec.IAM.Name == "") == (spec.IAM.ARN == "") {
		errs = append(errs, field.Invalid(path.Child("iam"), spec.IAM, "expected either name or arn"))
	}
	return slices.Concat(errs,
		validateBlockDevices(spec.BlockDevices, path.Child("blockDevices")),
		validateNetworkInterfaces(spec.NetworkInterfaces, path.Child("networkInterfaces")),
		validateTags(spec.Tags, path.Child("tags")),
		validateCapacityReservation(spec.CapacityReservation, path.Child("capacityReservation")),
		validateMetadataOptions(spec.InstanceMetadataOptions, path.Child("instanceMetadataOptions")),
		validateCPUOptions(spec.CPUOptions, path.Child("cpuOptions")),
	)
}

// isRegion reports whether a text can be a region: lower-case words with hyphens and a number at
// the end. It cannot change the host that a name is built from beyond its own label.
func isRegion(text string) bool {
	words := strings.Split(text, "-")
	if len(words) < 3 || len(text) > 40 {
		return false
	}
	for i, word := range words {
		from, to := 'a', 'z'
		if i == len(words)-1 {
			from, to = '0', '9'
		}
		if word == "" || strings.ContainsFunc(word, func(r rune) bool { return r < from || r > to }) {
			return false
		}
	}
	return true
}

func validateBlockDevices(devices []BlockDevice, path *field.Path) (errs field.ErrorList) {
	names := map[string]bool{}
	for i, device := range devices {
		at := path.Index(i)
		if names[device.DeviceName] {
			errs = append(errs, field.Duplicate(at.Child("deviceName"), device.DeviceName))
		}
		names[device.DeviceName] = true
		if len(devices) > 1 && device.DeviceName != RootDeviceName && !isDataDevice(device.DeviceName) {
			errs = append(errs,
				field.Invalid(at.Child("deviceName"), device.DeviceName, "expected "+RootDeviceName+", /dev/sd[a-z] or /dev/xvd[a-c][a-z]"))
		}
		errs = append(errs, validateEBS(device.EBS, at.Child("ebs"))...)
	}
	if len(devices) > 1 && !names[RootDeviceName] {
		errs = append(errs, field.Required(path, "one of several devices has to be "+RootDeviceName))
	}
	return errs
}

func validateEBS(ebs EBS, path *field.Path) (errs field.ErrorList) {
	if !slices.Contains(volumeTypes(), ebs.VolumeType) {
		errs = append(errs, field.NotSupported(path.Child("volumeType"), ebs.VolumeType, volumeTypes()))
	}
	if ebs.VolumeSize <= 0 {
		errs = append(errs, field.Invalid(path.Child("volumeSize"), ebs.VolumeSize, "expected a positive number of GiB"))
	}
	if ebs.IOPS < 0 || ebs.IOPS == 0 && strings.HasPrefix(ebs.VolumeType, "io") {
		errs = append(errs, field.Invalid(path.Child("iops"), ebs.IOPS, "expected a positive number, which io1 and io2 require"))
	}
	if ebs.Throughput != nil && *ebs.Throughput <= 0 {
		errs = append(errs, field.Invalid(path.Child("throughput"), *ebs.Throughput, "expected a positive number of MiB/s"))
	}
	return errs
}

// isDataDevice reports whether a text is /dev/sd[a-z], /dev/xvd[a-c] or /dev/xvd[a-c][a-z].
func isDataDevice(text string) bool {
	in := func(letter, last byte) bool { return 'a' <= letter && letter <= last }
	if name, ok := strings.CutPrefix(text, "/dev/sd"); ok {
		return len(name) == 1 && in(name[0], 'z')
	}
	name, ok := strings.CutPrefix(text, "/dev/xvd")
	return ok && (len(name) == 1 || len(name) == 2 && in(name[1], 'z')) && in(name[0], 'c')
}

func validateNetworkInterfaces(interfaces []NetworkInterface, path *field.Path) (errs field.ErrorList) {
	if len(interfaces) == 0 {
		errs = append(errs, field.Required(path, "at least one network interface"))
	}
	for i, nic := range interfaces {
		at := path.Index(i)
		if nic.SubnetID == "" {
			errs = append(errs, field.Required(at.Child("subnetID"), "the ID of a subnet"))
		}
		if len(nic.SecurityGroupIDs) == 0 {
			errs = append(errs, field.Required(at.Child("securityGroupIDs"), "at least one ID of a security group"))
		}
		for j, group := range nic.SecurityGroupIDs {
			if group == "" {
				errs = append(errs, field.Required(at.Child("securityGroupIDs").Index(j), "the ID of a security group"))
			}
		}
		if nic.InterfaceType != nil && !slices.Contains(interfaceTypes(), *nic.InterfaceType) {
			errs = append(errs, field.NotSupported(at.Child("interfaceType"), *nic.InterfaceType, interfaceTypes()))
		}
		for name, count := range map[string]*int32{
			"ipv6AddressCount": nic.IPv6AddressCount, "ipv6PrefixCount": nic.IPv6PrefixCount,
			"networkCardIndex": nic.NetworkCardIndex, "deviceIndex": nic.DeviceIndex,
		} {
			if count != nil && *count < 0 {
				errs = append(errs, field.Invalid(at.Child(name), *count, "expected no negative number"))
			}
		}
	}
	return errs
}

func validateTags(tags map[string]string, path *field.Path) (errs field.ErrorList) {
	var hasCluster, hasRole bool
	for key, value := range tags {
		hasCluster = hasCluster || strings.Contains(key, ClusterTagPrefix)
		hasRole = hasRole || strings.Contains(key, RoleTagPrefix)
		switch {
		case strings.HasPrefix(key, tagPrefix):
			errs = append(errs, field.Forbidden(path.Key(key), "the driver sets the tags that begin with "+tagPrefix))
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			errs = append(errs, field.Forbidden(path.Key(key), "EC2 reserves the tags that begin with aws:"))
		case key == "" || len([]rune(key)) > maxTagKey:
			errs = append(errs, field.TooLong(path.Key(key), "", maxTagKey))
		case len([]rune(value)) > maxTagValue:
			errs = append(errs, field.TooLong(path.Key(key), "", maxTagValue))
		}
	}
	if !hasCluster {
		errs = append(errs, field.Required(path, "a tag whose key has "+ClusterTagPrefix))
	}
	if !hasRole {
		errs = append(errs, field.Required(path, "a tag whose key has "+RoleTagPrefix))
	}
	if most := maxTags - ownTags; len(tags) > most {
		errs = append(errs, field.TooMany(path, len(tags), most))
	}
	return errs
}

func validateCapacityReservation(reservation *CapacityReservation, path *field.Path) (errs field.ErrorList) {
	if reservation == nil {
		return nil
	}
	set := 0
	for _, isSet := range []bool{reservation.Preference != "", reservation.ID != nil, reservation.ResourceGroupARN != nil} {
		if isSet {
			set++
		}
	}
	if set > 1 {
		errs = append(errs, field.Forbidden(path,
			"expected at most one of capacityReservationPreference, capacityReservationId and capacityReservationResourceGroupArn"))
	}
	return errs
}

func validateMetadataOptions(options *MetadataOptions, path *field.Path) (errs field.ErrorList) {
	if options == nil {
		return nil
	}
	if limit := options.HTTPPutResponseHopLimit; limit != nil && (*limit < 0 || *limit > maxHopLimit) {
		errs = append(errs, field.Invalid(path.Child("httpPutResponseHopLimit"), *limit, "expected 0 to 64"))
	}
	for name, c := range map[string]struct {
		value    string
		accepted []string
	}{
		"httpEndpoint":     {options.HTTPEndpoint, []string{"disabled", "enabled"}},
		"httpTokens":       {options.HTTPTokens, []string{"optional", "required"}},
		"httpProtocolIpv6": {options.HTTPProtocolIPv6, []string{"disabled", "enabled"}},
	} {
		if c.value != "" && !slices.Contains(c.accepted, c.value) {
			errs = append(errs, field.NotSupported(path.Child(name), c.value, c.accepted))
		}
	}
	return errs
}

func validateCPUOptions(options *CPUOptions, path *field.Path) (errs field.ErrorList) {
	if options == nil {
		return nil
	}
	if options.CoreCount == nil {
		errs = append(errs, field.Required(path.Child("coreCount"), "the number of cores"))
	}
	if threads := options.ThreadsPerCore; threads == nil {
		errs = append(errs, field.Required(path.Child("threadsPerCore"), "1 or 2"))
	} else if *threads != 1 && *threads != 2 {
		errs = append(errs, field.Invalid(path.Child("threadsPerCore"), *threads, "expected 1 or 2"))
	}
	return errs
}
