package cloudsim

import (
	"net/netip"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// LoopbackNetwork returns the network of the kubelets of a cloud that listens on a port:
// 127.a.b.0/24, where a and b are the bytes of the port. Two clouds on one computer have two ports,
// and so two networks.
func LoopbackNetwork(port uint16) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, byte(port >> 8), byte(port), 0}), 24)
}

// loopbackAddress returns an address for a VM that is a kubelet process: it shares the network of
// this computer, and with an address of its own its pods may listen on the same ports as those of
// other VMs. The addresses of VMs that have ended are given again, as late as possible. c.mu is
// held.
func (c *Cloud) loopbackAddress(number uint64) (string, error) {
	if !c.cfg.KubeletNetwork.IsValid() {
		return "127.0.0.1", nil
	}
	taken := map[string]bool{}
	for _, i := range c.instances {
		if !i.ended() {
			taken[i.API.PrivateIP] = true
		}
	}
	const most = 254 // without the first and the last one of a network
	ip := c.cfg.KubeletNetwork.Masked().Addr().As4()
	for n := range uint64(most) {
		ip[3] = byte((number+n)%most + 1)
		if address := netip.AddrFrom4(ip).String(); !taken[address] {
			return address, nil
		}
	}
	return "", refuse(cloudapi.CodeQuotaExceeded, "all %d addresses of VMs with a kubelet are in use", most)
}
