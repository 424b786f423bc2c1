package machine

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
)

// ending contains what this process knows of a VM that the cloud is deleting. A process without
// that knowledge calls the driver once more.
type ending struct {
	since, asked time.Time
	adopting     bool // the VM has no UID of a machine, and counts as this machine's
}

// observeEnding records in the world a VM that the cloud is deleting; otherwise each pass would
// call the driver for it.
func (v *vms) observeEnding(p *pass) {
	if e := v.memory.of(p.world.Machine.UID).ending; !e.since.IsZero() {
		p.world.VM = e.fact()
	}
}

// noteEnding remembers that the cloud has not finished deleting a VM, and since when.
func (v *vms) noteEnding(machine types.UID, adopting bool) lifecycle.VMFact {
	e := ending{since: v.clock.Now(), asked: v.clock.Now(), adopting: adopting}
	v.memory.change(machine, func(is *remembered) {
		if !is.ending.since.IsZero() {
			e.since = is.ending.since
		}
		is.ending = e
	})
	return e.fact()
}

func (e ending) fact() lifecycle.VMFact {
	return lifecycle.VMFact{State: lifecycle.VMEnding, EndingSince: e.since, AskedAt: e.asked, Adopting: e.adopting}
}
