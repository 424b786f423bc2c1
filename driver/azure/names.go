package azure

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Names are those of Machine Controller Manager, so that it and the fleet can take over each
// other's VMs.
const (
	suffixNIC      = "-nic"
	suffixOSDisk   = "-os-disk"
	suffixDataDisk = "-data-disk"
	// maxVMName is how many characters the name of a VM has, which is that of the computer, too.
	maxVMName = 64
	// maxName is how many characters a name of another resource has at most.
	maxName = 90
	// hashSize is how many digits of a hash distinguish the names of VMs.
	hashSize = 8
)

// The types of resources.
const (
	typeVM   = "Microsoft.Compute/virtualMachines"
	typeDisk = "Microsoft.Compute/disks"
	typeNIC  = "Microsoft.Network/networkInterfaces"
)

// vmNames returns the names that a Machine's VM can have: that of the Machine, and another one for
// when a VM has that name already which is not the Machine's. Two namespaces with Machines of one
// name may use the same resource group.
func vmNames(machine, uid string) (first, second string) {
	first = strings.ToLower(machine)
	hash := sha256.Sum256([]byte(uid))
	suffix := "-" + hex.EncodeToString(hash[:])[:hashSize]
	return first, strings.TrimRight(first[:min(len(first), maxVMName-len(suffix))], "-.") + suffix
}

func nicName(vm string) string    { return vm + suffixNIC }
func osDiskName(vm string) string { return vm + suffixOSDisk }

func dataDiskName(vm string, disk DataDisk) string {
	name := strconv.Itoa(int(disk.Lun))
	if disk.Name != "" {
		name = disk.Name + "-" + name
	}
	return vm + "-" + name + suffixDataDisk
}

// resourceID is the ID of a resource in a resource group.
type resourceID struct{ subscription, group, kind, name string }

// String returns the cloud's ID, with the resource group in lower case as cloud-provider-azure has
// it in the provider IDs of Nodes.
func (id resourceID) String() string {
	return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/%s/%s", id.subscription, strings.ToLower(id.group), id.kind, id.name)
}

// providerID returns the provider ID of a VM.
func (id resourceID) providerID() string { return providerPrefix + id.String() }

// same reports whether two IDs name one resource. The cloud does not distinguish upper and lower
// case.
func (id resourceID) same(other resourceID) bool {
	return strings.EqualFold(id.String(), other.String())
}

// providerPrefix begins provider IDs; a slash follows.
const providerPrefix = "azure://"

// parseResourceID reads the ID of a resource in a resource group; ok is false for another text, and
// for one whose parts are not names.
func parseResourceID(text string) (id resourceID, ok bool) {
	parts := strings.Split(text, "/")
	const count = 9 // with the empty one before the first slash
	if len(parts) != count || parts[0] != "" || !strings.EqualFold(parts[1], "subscriptions") ||
		!strings.EqualFold(parts[3], "resourceGroups") || !strings.EqualFold(parts[5], "providers") {
		return resourceID{}, false
	}
	id = resourceID{subscription: parts[2], group: parts[4], name: parts[8]}
	for _, kind := range []string{typeVM, typeDisk, typeNIC} {
		if strings.EqualFold(parts[6]+"/"+parts[7], kind) {
			id.kind = kind
		}
	}
	return id, id.kind != "" && isName(id.subscription) && isName(id.group) && isName(id.name)
}

// parseProviderID reads a provider ID: that of the driver, or azure:///<location>/<name> of Machine
// Controller Manager, whose subscription and resource group are those of the class.
func parseProviderID(text, subscription, group string) (id resourceID, ok bool) {
	rest, found := strings.CutPrefix(text, providerPrefix)
	if !found {
		return resourceID{}, false
	}
	if id, ok := parseResourceID(rest); ok {
		return id, id.kind == typeVM && strings.EqualFold(id.subscription, subscription)
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 3 || parts[0] != "" || group == "" || !isName(parts[2]) {
		return resourceID{}, false
	}
	return resourceID{subscription, group, typeVM, parts[2]}, true
}

// isName reports whether a text can be the name of a resource or resource group, so that it can be
// a part of a path.
func isName(text string) bool {
	return len(text) <= maxName && strings.Trim(text, ".") != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.()", r)
	})
}
