package machine

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
)

// ending is a VM that the cloud is deleting, as this process has seen it. Whoever does not know asks once more.
type ending struct {
	since, asked time.Time
	adopting     bool // it has no UID, and counts as the machine's
}

// observeEnding puts a VM that is ending into the world, so that the cloud is left alone for a while.
func (c *Controller) observeEnding(p *pass) {
	if e := c.memory.of(p.world.Machine.UID).ending; !e.since.IsZero() {
		p.world.VM = e.fact()
	}
}

// noteEnding notes that the cloud goes on deleting a VM.
func (c *Controller) noteEnding(machine types.UID, adopting bool) lifecycle.VMFact {
	e := ending{since: c.cfg.Clock.Now(), asked: c.cfg.Clock.Now(), adopting: adopting}
	c.memory.change(machine, func(is *remembered) {
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
