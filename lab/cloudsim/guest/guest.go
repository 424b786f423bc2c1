// Package guest is what the simulated cloud and the things that run inside its VMs know of each other.
package guest

import (
	"context"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
)

// VM is a machine that is switched on, as the software on it sees it.
type VM struct {
	// ID is the cloud's, and the key in Host and Cloud.
	ID string
	// Name is the host name, and so the name of the Node.
	Name         string
	ProviderID   string
	Region       string
	Zone         string
	InstanceType string
	Image        string
	IP           string
	CPU          int64
	MemoryMiB    int64
	GPU          int64
	// BootstrapToken was found in the user data; "" when there was none.
	BootstrapToken string
	// Joined says that this VM has registered its Node already, and does not do so again.
	Joined bool
	// Resumed says that the VM was on before the cloud started, and may have got further than the cloud knows.
	Resumed bool
	Health  Health
}

// Health says how well the software on a VM is.
type Health int

// The values of Health.
const (
	// Healthy is a VM in working order.
	Healthy Health = iota
	// NotReady is a VM whose kubelet reports that it is not ready.
	NotReady
	// Frozen is a VM that stands still.
	Frozen
)

// Host runs the VMs of one boot mode. Its methods return at once and are safe for concurrent use; all but Run may be
// called before Run.
type Host interface {
	// PowerOn starts a VM. It does nothing when the VM is on.
	PowerOn(vm VM)
	// PowerOff ends a VM: kindly within the grace period, then by force. It says whether nothing of the VM runs any more;
	// if something does, the Host calls Cloud.IsOff when that has ended, too. What the VM wrote elsewhere stays: its
	// Node, and the contents of volumes.
	PowerOff(id string, grace time.Duration) (off bool)
	// SetHealth changes the health of a VM that is on.
	SetHealth(id string, health Health)
	// SetVolumes says which volumes are attached to a VM that is on, by ID.
	SetVolumes(id string, volumes []string)
	// Run does the work until ctx ends, and tells the cloud what happens. It leaves VMs on that can live without it.
	Run(ctx context.Context, cloud Cloud) error
}

// Cloud is what a Host needs of the cloud. Its methods do not block on anything that the Host does.
type Cloud interface {
	// Joined says that the VM's Node exists, with its Lease. The line goes to the console.
	Joined(id, line string)
	// Console says that the VM shows a line on its console.
	Console(id, line string)
	// Died says that the VM has ended by itself.
	Died(id, reason string)
	// IsOff says that nothing of a VM runs any more that PowerOff could not end at once.
	IsOff(id string)
	// Settings are those of the moment. To a Host matter how long pods take to end, and how updates in place go.
	Settings() cloudapi.Settings
}
