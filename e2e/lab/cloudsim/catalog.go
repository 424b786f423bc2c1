package cloudsim

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// catalog lists what the cloud offers. It does not change.
type catalog struct {
	regions  []cloudapi.Region
	types    []cloudapi.InstanceType
	images   []cloudapi.Image
	networks []cloudapi.Network
}

func newCatalog() catalog {
	return catalog{
		regions: []cloudapi.Region{
			{Name: cloudapi.DefaultRegion, Zones: []string{cloudapi.DefaultZone, "sim-1b", "sim-1c"}},
			{Name: "sim-2", Zones: []string{"sim-2a", "sim-2b"}},
			// Enough zones for each kind of fault to have its own.
			{Name: "sim-3", Zones: []string{"sim-3a", "sim-3b", "sim-3c", "sim-3d", "sim-3e", "sim-3f", "sim-3g", "sim-3h", "sim-3i"}},
		},
		types: []cloudapi.InstanceType{
			{Name: "small-1", CPU: 1, MemoryMiB: 2 << 10},
			{Name: "small-2", CPU: 2, MemoryMiB: 4 << 10},
			{Name: cloudapi.DefaultInstanceType, CPU: 4, MemoryMiB: 16 << 10},
			{Name: "standard-8", CPU: 8, MemoryMiB: 32 << 10},
			{Name: "large-32", CPU: 32, MemoryMiB: 128 << 10},
			{Name: "gpu-8", CPU: 8, MemoryMiB: 64 << 10, GPU: 1},
		},
		images: []cloudapi.Image{{Name: cloudapi.DefaultImage}, {Name: "linux-2"}},
		networks: []cloudapi.Network{
			{Name: cloudapi.DefaultNetwork, Region: cloudapi.DefaultRegion, CIDR: "10.64.0.0/12"},
			{Name: "other", Region: cloudapi.DefaultRegion, CIDR: "10.80.0.0/12"},
			{Name: cloudapi.DefaultNetwork, Region: "sim-2", CIDR: "10.96.0.0/12"},
			{Name: cloudapi.DefaultNetwork, Region: "sim-3", CIDR: "10.112.0.0/12"},
		},
	}
}

// complete fills in the defaults of a create and checks that the cloud has what the request names.
func (c catalog) complete(req *cloudapi.CreateInstanceRequest) error {
	if err := c.completePlace(&req.Region, &req.Zone); err != nil {
		return err
	}
	setDefault(&req.InstanceType, cloudapi.DefaultInstanceType)
	setDefault(&req.Image, cloudapi.DefaultImage)
	setDefault(&req.Network, cloudapi.DefaultNetwork)
	if req.Boot == "" {
		req.Boot = cloudapi.BootSimulated
	}
	if _, ok := c.instanceType(req.InstanceType); !ok {
		return invalid("instance type %q does not exist; there are %v",
			req.InstanceType, names(c.types, func(t cloudapi.InstanceType) string { return t.Name }))
	}
	if !slices.ContainsFunc(c.images, func(i cloudapi.Image) bool { return i.Name == req.Image }) {
		return invalid("image %q does not exist; there are %v", req.Image, names(c.images, func(i cloudapi.Image) string { return i.Name }))
	}
	if _, ok := c.network(req.Region, req.Network); !ok {
		return invalid("network %q does not exist in region %q", req.Network, req.Region)
	}
	return nil
}

// completePlace fills in the default region and zone, and checks them. A zone alone is enough to
// name its region.
func (c catalog) completePlace(region, zone *string) error {
	if *region == "" {
		*region = cloudapi.DefaultRegion
		if at := slices.IndexFunc(c.regions, func(r cloudapi.Region) bool { return slices.Contains(r.Zones, *zone) }); at >= 0 {
			*region = c.regions[at].Name
		}
	}
	at := slices.IndexFunc(c.regions, func(r cloudapi.Region) bool { return r.Name == *region })
	if at < 0 {
		return invalid("region %q does not exist; there are %v", *region, names(c.regions, func(r cloudapi.Region) string { return r.Name }))
	}
	setDefault(zone, c.regions[at].Zones[0])
	if !slices.Contains(c.regions[at].Zones, *zone) {
		return invalid("zone %q does not exist in region %q; there are %v", *zone, *region, c.regions[at].Zones)
	}
	return nil
}

func (c catalog) instanceType(name string) (cloudapi.InstanceType, bool) {
	at := slices.IndexFunc(c.types, func(t cloudapi.InstanceType) bool { return t.Name == name })
	if at < 0 {
		return cloudapi.InstanceType{}, false
	}
	return c.types[at], true
}

func (c catalog) network(region, name string) (cloudapi.Network, bool) {
	at := slices.IndexFunc(c.networks, func(n cloudapi.Network) bool { return n.Region == region && n.Name == name })
	if at < 0 {
		return cloudapi.Network{}, false
	}
	return c.networks[at], true
}

// hasZone reports whether any region has the zone.
func (c catalog) hasZone(zone string) bool {
	return slices.ContainsFunc(c.regions, func(r cloudapi.Region) bool { return slices.Contains(r.Zones, zone) })
}

// address returns the n-th address of a network; a network has a million, and then begins again.
func address(network cloudapi.Network, n uint64) (string, error) {
	prefix, err := netip.ParsePrefix(network.CIDR)
	if err != nil {
		return "", fmt.Errorf("network %s: %w", network.Name, err)
	}
	hosts := uint64(1)<<(32-prefix.Bits()) - 2
	at := n%hosts + 1
	ip := prefix.Masked().Addr().As4()
	for i := 3; i >= 0 && at > 0; i-- {
		at += uint64(ip[i])
		ip[i] = byte(at)
		at >>= 8
	}
	return netip.AddrFrom4(ip).String(), nil
}

func setDefault(s *string, value string) {
	if *s == "" {
		*s = value
	}
}

func names[T any](items []T, name func(T) string) []string {
	all := make([]string, len(items))
	for i, item := range items {
		all[i] = name(item)
	}
	return all
}
