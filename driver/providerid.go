package driver

import "strings"

// The schemes of provider IDs that have several forms. They are part of the contract, and no method
// of a driver: whether a Node is a Machine's is decided for each change of a Node, also while the
// driver's process is away.
const (
	aws   = "aws:///"
	azure = "azure:///"
)

// SameVM reports whether the provider ID of a Machine and that of a Node name one VM: IdenticalVM
// reports it, or the Machine has the location and the name of a VM of Azure, as Machine Controller
// Manager has written it, and the Node the cloud's ID of a VM of that name. The first form has no
// resource group: it names a VM only together with the class of the Machine, so this is no evidence
// that the VM is the Machine's.
func SameVM(machine, node string) bool {
	if IdenticalVM(machine, node) {
		return true
	}
	ofMachine, isAzure := strings.CutPrefix(machine, azure)
	location, name, _ := strings.Cut(ofMachine, "/") // Machine Controller Manager has written azure:///<location>/<name>
	vm := vmOfAzure(node)
	return isAzure && location != "" && vm != "" && strings.EqualFold(name, vm)
}

// IdenticalVM reports whether the provider ID of a Machine, or of a VM as the cloud reports it, and
// that of a Node name one VM regardless of the class is: they are equal, or they are those of AWS,
// where a Machine has the region, as in Machine Controller Manager, and a Node the zone, as the
// cloud controller manager sets it: a zone's name begins with that of its region. An ID of an
// instance of AWS is never used again, in any region.
func IdenticalVM(machine, node string) bool {
	ofMachine, isAWS := strings.CutPrefix(machine, aws)
	ofNode, isNodeOfAWS := strings.CutPrefix(node, aws)
	if machine == node || !isAWS || !isNodeOfAWS {
		return machine == node
	}
	region, vm, _ := strings.Cut(ofMachine, "/")
	zone, vmOfNode, _ := strings.Cut(ofNode, "/")
	return vm != "" && vm == vmOfNode && region != "" && strings.HasPrefix(zone, region)
}

// MayNameOneVM reports whether the provider IDs of two Machines may name one VM: they are equal, or
// they differ in what a driver takes from the class of the Machine instead, the region of AWS, and
// location, subscription and resource group of Azure.
func MayNameOneVM(one, other string) bool {
	for _, scheme := range []string{aws, azure} {
		if strings.HasPrefix(one, scheme) && strings.HasPrefix(other, scheme) {
			return strings.EqualFold(lastElement(one), lastElement(other))
		}
	}
	return one == other
}

func lastElement(id string) string { return id[strings.LastIndex(id, "/")+1:] }

// vmOfAzure returns the name of a VM in its provider ID:
// azure:///subscriptions/<id>/resourceGroups/<group>/providers/Microsoft.Compute/virtualMachines/<name>.
// It is "" in other IDs.
func vmOfAzure(id string) string {
	rest, ok := strings.CutPrefix(id, azure)
	parts := strings.Split(rest, "/")
	const count = 8
	if !ok || len(parts) != count || !strings.EqualFold(parts[0], "subscriptions") || !strings.EqualFold(parts[2], "resourceGroups") ||
		!strings.EqualFold(strings.Join(parts[4:7], "/"), "providers/Microsoft.Compute/virtualMachines") {
		return ""
	}
	return parts[7]
}
