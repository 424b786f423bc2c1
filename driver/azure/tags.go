package azure

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// Tags of every VM, network interface and disk that the driver creates. A provider spec cannot set
// them. The cloud does not distinguish upper and lower case in keys.
const (
	// TagNamespace is the namespace of the Machine and of its MachineClass.
	//
	// On: VMs and their resources. By: driver. Value: name of a Namespace. See: drivers/azure.md.
	TagNamespace = "machine-controller-fleet-namespace"
	// TagMachine is the name of the Machine.
	//
	// On: VMs and their resources. By: driver. Value: name of a Machine. See: drivers/azure.md.
	TagMachine = "machine-controller-fleet-machine"
	// TagMachineUID is the UID of the Machine.
	//
	// On: VMs and their resources. By: driver. Value: UID. See: drivers/azure.md.
	TagMachineUID = "machine-controller-fleet-machine-uid"
	// TagControlCluster is the ID of the control cluster. What was created while it was not known does
	// not have it.
	//
	// On: VMs and their resources. By: driver. Value: ID. See: drivers/azure.md.
	TagControlCluster = "machine-controller-fleet-control-cluster"
)

// ownTags are the keys of the driver's tags.
func ownTags() []string { return []string{TagNamespace, TagMachine, TagMachineUID, TagControlCluster} }

// tagsFor returns the tags of what is created for a Machine.
func tagsFor(t driver.Target, ofSpec map[string]string) map[string]*string {
	tags := map[string]*string{}
	for key, value := range ofSpec {
		tags[key] = &value
	}
	own := map[string]string{TagNamespace: t.Machine.Namespace, TagMachine: t.Machine.Name, TagMachineUID: string(t.Machine.UID)}
	if t.ControlCluster != "" {
		own[TagControlCluster] = t.ControlCluster
	}
	for key, value := range own {
		tags[key] = &value
	}
	return tags
}

// tagSet are the tags of a resource, by their keys in lower case.
type tagSet map[string]string

// tagsOf reads tags as the cloud returns them.
func tagsOf(tags map[string]*string) tagSet {
	set := make(tagSet, len(tags))
	for key, text := range tags {
		set[strings.ToLower(key)] = value(text)
	}
	return set
}

// createdFor returns the Machine for which a resource with these tags was created; ok is false if
// the tags do not identify one.
func (s tagSet) createdFor() (r driver.Resource, ok bool) {
	r = driver.Resource{Namespace: s[TagNamespace], Machine: s[TagMachine], MachineUID: types.UID(s[TagMachineUID])}
	return r, r.Namespace != "" && r.Machine != "" && r.MachineUID != ""
}

// isOwn reports whether a resource with these tags and of that name is a Machine's: it has the
// Machine's UID or, for a Machine that adopts, it is of the cluster of the class and Machine
// Controller Manager has created it for the Machine.
func (s tagSet) isOwn(t driver.Target, at place, name, bare string) bool {
	uid, tagged := s[TagMachineUID]
	if tagged {
		return uid == string(t.Machine.UID)
	}
	return t.Adopt && t.Machine.Namespace == t.Class.Namespace && strings.EqualFold(name, bare) && s.isOfCluster(at.tags)
}

// isOfCluster reports whether Machine Controller Manager shows a resource with these tags as one of
// the cluster of a class with those.
func (s tagSet) isOfCluster(ofSpec map[string]string) bool {
	for _, prefix := range []string{clusterTag, roleTag} {
		key, ok := tagWith(ofSpec, prefix)
		if _, has := s[strings.ToLower(key)]; !ok || !has {
			return false
		}
	}
	return true
}

// tagWith returns the first key that begins with a prefix.
func tagWith(tags map[string]string, prefix string) (key string, ok bool) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if strings.HasPrefix(key, prefix) {
			return key, true
		}
	}
	return "", false
}
