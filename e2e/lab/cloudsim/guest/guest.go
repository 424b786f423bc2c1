// Package guest is the interface between the simulated cloud and the software inside its VMs, and
// has the Loop by which they, and other clients of the cloud, work.
//
// A Loop runs a step for each key when it is due. It does everything in the simulated cloud that
// happens later.
//
// A key's steps never overlap, a key that is woken while its step runs is stepped again, and ten
// thousand sleeping keys cost ten thousand entries of a heap and no goroutine. Waking a key early
// has no effect: a step reads the state, does what is due, and returns when to call it again.
package guest

import (
	"context"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// VM is a machine that is switched on, as its software sees it.
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
	// Server is the URL of the API server in the user data; "" when there was none.
	Server string
	// UserData is the user data that the VM boots with. Only VMs with a real kubelet have it.
	UserData []byte
	// Joined reports whether this VM has registered its Node already; it does not register it again.
	Joined bool
	// Resumed reports whether the VM was on before the cloud started, and may be in a later state than
	// the cloud knows.
	Resumed bool
	Health  Health
}

// Health is the health of the software on a VM.
type Health int

// The values of Health.
const (
	// Healthy is a VM in working order.
	Healthy Health = iota
	// NotReady is a VM whose kubelet reports that it is not ready.
	NotReady
	// Frozen is a VM that is suspended.
	Frozen
)

// Host runs the VMs of one boot mode. Its methods return at once and are safe for concurrent use;
// all but Run may be called before Run.
type Host interface {
	// PowerOn starts a VM. It does nothing when the VM is on.
	PowerOn(vm VM)
	// PowerOff ends a VM: gracefully within the grace period, then by force. It reports whether
	// nothing of the VM runs any more; otherwise the Host calls Cloud.IsOff when all has ended. What
	// the VM wrote elsewhere is kept: its Node, and the contents of volumes.
	PowerOff(id string, grace time.Duration) (off bool)
	// SetHealth changes the health of a VM that is on.
	SetHealth(id string, health Health)
	// SetVolumes sets which volumes are attached to a VM that is on, by ID.
	SetVolumes(id string, volumes []string)
	// Run does the work until ctx ends, and reports changes to the cloud. VMs that do not depend on it
	// stay on.
	Run(ctx context.Context, cloud Cloud) error
}

// Cloud is the part of the cloud that a Host uses. Its methods do not block on anything that the
// Host does.
type Cloud interface {
	// Joined reports that the VM's Node exists, with its Lease. The line is written to the console.
	Joined(id, line string)
	// Console reports a line of the VM's console.
	Console(id, line string)
	// Died reports that the VM has ended by itself.
	Died(id, reason string)
	// IsOff reports that nothing of a VM runs any more that PowerOff could not end at once.
	IsOff(id string)
	// Settings returns the current settings. A Host uses how long pods take to end, and the settings
	// of updates in place.
	Settings() cloudapi.Settings
}
