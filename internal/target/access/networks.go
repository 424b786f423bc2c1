package access

import (
	"net/netip"
	"slices"
)

// Local returns the networks that lead to the Pod of the fleet itself, and those with the metadata
// services of clouds.
func Local() []netip.Prefix {
	var all []netip.Prefix
	for _, network := range []string{
		"127.0.0.0/8", "0.0.0.0/8", "::/127", // 0.0.0.0 and :: are the host itself, too
		"169.254.0.0/16", "fe80::/10", "fd00:ec2::/64", "fd20:ce::254/128", // of AWS, Google
		"100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", // of Alibaba, Azure, Oracle
	} {
		all = append(all, netip.MustParsePrefix(network))
	}
	return all
}

// Refuses reports whether no server may have an address. One of IPv6 that leads to one of IPv4 is
// refused as that is.
func (p Policy) Refuses(address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	behind := embedded(address)
	return slices.ContainsFunc(p.Refused, func(network netip.Prefix) bool {
		return network.Contains(address) || network.Contains(behind)
	})
}

// embedded returns the address of IPv4 that one of IPv6 leads to, an invalid one if there is none.
func embedded(address netip.Addr) netip.Addr {
	bytes := address.As16()
	for _, form := range []struct {
		network string
		from    int // byte
	}{
		{"::/96", 12},           // IPv4-compatible, RFC 4291
		{"::ffff:0:0:0/96", 12}, // IPv4-translated, RFC 2765
		{"64:ff9b::/96", 12},    // NAT64, RFC 6052
		{"64:ff9b:1::/48", 12},  // NAT64 of one's own network, RFC 8215, with a prefix of 96 bits
		{"2002::/16", 2},        // 6to4, RFC 3056
	} {
		if netip.MustParsePrefix(form.network).Contains(address) {
			return netip.AddrFrom4([4]byte(bytes[form.from:]))
		}
	}
	return netip.Addr{}
}
