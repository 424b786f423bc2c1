package cloudsim_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

func TestLoopbackNetworkDiffersForEachPort(t *testing.T) {
	if got, want := cloudsim.LoopbackNetwork(0x2803), netip.MustParsePrefix("127.40.3.0/24"); got != want {
		t.Errorf("the network of port %d is %s, want %s", 0x2803, got, want)
	}
}

// Each VM with a kubelet has its own address in the network of its cloud. That of a VM that
// has ended is given again when there is no other.
func TestLoopbackAddresses(t *testing.T) {
	inBubble(t, cloudapi.Settings{}, func(b *bubble) {
		b.end()
		b.cfg.Hosts[cloudapi.BootKubelet] = guest.Nowhere{}
		b.cfg.KubeletNetwork = netip.MustParsePrefix("127.40.3.0/24")
		b.start()
		const most = 254
		seen := map[string]string{}
		for n := range most {
			vm := b.create(cloudapi.CreateInstanceRequest{Name: fmt.Sprintf("vm-%d", n), Boot: cloudapi.BootKubelet})
			address, err := netip.ParseAddr(vm.PrivateIP)
			if err != nil || !b.cfg.KubeletNetwork.Contains(address) || seen[vm.PrivateIP] != "" {
				t.Fatalf("VM %d has the address %q, %v; want one in %s that no other VM has (%s)",
					n, vm.PrivateIP, err, b.cfg.KubeletNetwork, seen[vm.PrivateIP])
			}
			seen[vm.PrivateIP] = vm.ID
		}
		another := cloudapi.CreateInstanceRequest{Name: "another", Boot: cloudapi.BootKubelet}
		if code := b.refused(http.MethodPost, cloudapi.PathInstances, another); code != cloudapi.CodeQuotaExceeded {
			t.Errorf("one more VM: %s, want %s", code, cloudapi.CodeQuotaExceeded)
		}
		const free = "127.40.3.7"
		b.remove(seen[free])
		b.pass(time.Second)
		if vm := b.create(another); vm.PrivateIP != free {
			t.Errorf("one more VM has the address %s, want that of the VM that has ended, %s", vm.PrivateIP, free)
		}
		if vm := b.create(cloudapi.CreateInstanceRequest{Name: "simulated"}); vm.PrivateIP == "" || seen[vm.PrivateIP] != "" {
			t.Errorf("a VM without a kubelet has the address %q", vm.PrivateIP)
		}
	})
}
