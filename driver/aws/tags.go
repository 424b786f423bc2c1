package aws

import (
	"maps"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// Tags of what the driver creates. A provider spec cannot set a tag that begins with tagPrefix.
const (
	tagPrefix = v1alpha1.FleetDomain
	// TagNamespace is the namespace of the Machine and its MachineClass.
	//
	// On: VMs and their resources. By: driver. Value: name of a Namespace. See: drivers/aws.md.
	TagNamespace = tagPrefix + "namespace"
	// TagMachine is the name of the Machine.
	//
	// On: VMs and their resources. By: driver. Value: name of a Machine. See: drivers/aws.md.
	TagMachine = tagPrefix + "machine"
	// TagMachineUID is the UID of the Machine.
	//
	// On: VMs and their resources. By: driver. Value: UID. See: drivers/aws.md.
	TagMachineUID = tagPrefix + "machine-uid"
	// TagControlCluster is the ID of the control cluster. What was created while the ID was not known
	// does not have it.
	//
	// On: VMs and their resources. By: driver. Value: ID. See: drivers/aws.md.
	TagControlCluster = tagPrefix + "control-cluster"
	// TagName is the name of the Machine, as Machine Controller Manager sets it and as the console
	// shows it.
	//
	// On: VMs and their resources. By: driver. Value: name of a Machine. See: drivers/aws.md.
	TagName = "Name"

	// ClusterTagPrefix and RoleTagPrefix are in the keys of tags that each provider spec has: those of
	// the cluster and of the role.
	ClusterTagPrefix = "kubernetes.io/cluster/"
	RoleTagPrefix    = "kubernetes.io/role/"
)

// Limits of EC2 on tags of one resource.
const (
	maxTags     = 50
	maxTagKey   = 128
	maxTagValue = 256
	// ownTags is how many tags the driver adds to those of the provider spec.
	ownTags = 5
)

// fleetTags are the tags of the fleet for a machine: those that a sweep lists by.
func fleetTags(t driver.Target) map[string]string {
	tags := map[string]string{TagNamespace: t.Class.Namespace, TagMachine: t.Machine.Name, TagMachineUID: string(t.Machine.UID)}
	if t.ControlCluster != "" {
		tags[TagControlCluster] = t.ControlCluster
	}
	return tags
}

// specTags are the tags of the provider spec, and the name.
func specTags(spec ProviderSpec, machine string) map[string]string {
	tags := maps.Clone(spec.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	tags[TagName] = machine
	return tags
}

// clusterKeys are the keys of the tags that all VMs in the scope of a class have.
func clusterKeys(spec ProviderSpec) []string {
	var keys []string
	for key := range spec.Tags {
		if strings.Contains(key, ClusterTagPrefix) || strings.Contains(key, RoleTagPrefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// toTags returns tags in the order of their keys: the parameters of a repeated create are compared
// with those of the first one.
func toTags(tags map[string]string) (list []types.Tag) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, types.Tag{Key: sdk.String(key), Value: sdk.String(tags[key])})
	}
	return list
}

// fromTags returns the tags of a resource.
func fromTags(list []types.Tag) map[string]string {
	tags := make(map[string]string, len(list))
	for _, tag := range list {
		tags[sdk.ToString(tag.Key)] = sdk.ToString(tag.Value)
	}
	return tags
}

// filter is a filter of a list.
func filter(name string, values ...string) types.Filter {
	return types.Filter{Name: sdk.String(name), Values: values}
}

// hasTag is the filter for resources with a tag of this value. EC2 reads * and ? in the values of
// filters as wildcards, and \ as their escape.
func hasTag(key, value string) types.Filter {
	return filter("tag:"+key, strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`).Replace(value))
}
