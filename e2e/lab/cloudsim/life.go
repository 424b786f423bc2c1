package cloudsim

import (
	"context"
	"slices"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// step brings a VM up to date and returns when it has to be stepped again.
func (c *Cloud) step(_ context.Context, id string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, now := c.instances[id], c.cfg.Clock.Now()
	if i == nil {
		return guest.Never
	}
	if i.ended() {
		return c.settle(i, now)
	}
	after, next := i.advance(now)
	if after != i {
		if err := c.commit(c.replace(after)); err != nil {
			c.cfg.Log.Error("Failed to save a change of a VM; trying again", "instance", id, "err", err)
			return retryWrite
		}
	}
	c.reportHost(after, now)
	switch {
	case after.ended():
		return 0
	case next.IsZero():
		return guest.Never
	default:
		return next.Sub(now)
	}
}

// settle frees the volumes of a VM that has ended, once nothing of it runs that could write to
// them, and drops the VM later. c.mu is held.
func (c *Cloud) settle(i *instance, now time.Time) time.Duration {
	if off := c.reportHost(i, now); !off {
		return guest.Never // The host wakes it.
	}
	if err := c.releaseVolumes(i); err != nil {
		c.cfg.Log.Error("Failed to release the volumes of a terminated VM; trying again", "instance", i.API.ID, "err", err)
		return retryWrite
	}
	return c.forgetLater(i, now)
}

// forgetLater drops a VM that ended long enough ago, and otherwise returns when to step again. c.mu
// is held.
func (c *Cloud) forgetLater(i *instance, now time.Time) time.Duration {
	after := time.Duration(c.settings.Current.ForgetAfter)
	if after == 0 {
		after = defaultForgetAfter
	}
	if wait := i.EndedAt.Add(after).Sub(now); wait > 0 {
		return wait
	}
	if err := c.commit(change{forgetInstances: []string{i.API.ID}}); err != nil {
		c.cfg.Log.Error("Failed to forget a terminated VM; trying again", "instance", i.API.ID, "err", err)
		return retryWrite
	}
	return guest.Never
}

// replace is the change to a new version of a VM. When the VM has ended, the volumes that were
// created with it end, too. c.mu is held.
func (c *Cloud) replace(i *instance) change {
	ch := change{instances: []*instance{i}}
	if !i.ended() {
		return ch
	}
	for _, id := range i.API.VolumeIDs {
		if c.volumes[id] != nil {
			ch.forgetVolumes = append(ch.forgetVolumes, id)
		}
	}
	return ch
}

// reportHost makes the host match the state of the VM, and reports whether nothing runs. c.mu is
// held.
func (c *Cloud) reportHost(i *instance, now time.Time) (off bool) {
	host := c.cfg.Hosts[i.API.Boot]
	switch {
	case host == nil:
		return true
	case i.poweredOn(now):
		host.PowerOn(c.guestVM(i))
		host.SetHealth(i.API.ID, c.health(i))
		host.SetVolumes(i.API.ID, c.attachedTo(i.API.ID))
		return false
	case i.API.State == cloudapi.StateStopping:
		return host.PowerOff(i.API.ID, i.StopAt.Sub(now))
	case i.ended():
		return host.PowerOff(i.API.ID, 0)
	}
	return true
}

// health is that of the VM or, if worse, of its zone. c.mu is held.
func (c *Cloud) health(i *instance) guest.Health {
	if slices.Contains(c.settings.Current.FailedZones, i.API.Zone) {
		return guest.Frozen
	}
	return i.Health
}

func (c *Cloud) guestVM(i *instance) guest.VM {
	size, _ := c.offers.instanceType(i.API.InstanceType)
	return guest.VM{
		ID: i.API.ID, Name: i.API.Name, ProviderID: i.API.ProviderID, Region: i.API.Region, Zone: i.API.Zone,
		InstanceType: i.API.InstanceType, Image: i.API.Image, IP: i.API.PrivateIP, CPU: size.CPU,
		MemoryMiB: size.MemoryMiB, GPU: size.GPU, BootstrapToken: i.BootstrapToken, Server: i.Server, UserData: i.UserData,
		Joined: i.Joined, Health: c.health(i),
	}
}

// hostView is the cloud as its hosts see it.
type hostView struct{ *Cloud }

var _ guest.Cloud = hostView{}

// Settings returns the current settings.
func (v hostView) Settings() cloudapi.Settings { return v.currentSettings() }

// Joined records that the VM's Node exists.
func (v hostView) Joined(id, line string) {
	v.update(id, func(i *instance, now time.Time) {
		i.Joined = true
		i.say(now, line)
	})
}

// Console adds a line to the VM's console.
func (v hostView) Console(id, line string) {
	v.update(id, func(i *instance, now time.Time) { i.say(now, line) })
}

// Died ends the VM.
func (v hostView) Died(id, reason string) {
	v.update(id, func(i *instance, now time.Time) {
		if i.alive() {
			i.end(now, reason)
		}
	})
}

// IsOff steps the VM again.
func (v hostView) IsOff(id string) { v.life.Wake(id) }

// update changes a copy of a VM that has not ended. What a host reports is lost when it cannot be
// written; the host reports it again when the cloud starts again.
func (c *Cloud) update(id string, mutate func(i *instance, now time.Time)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.instances[id]
	if i == nil || i.ended() {
		return
	}
	after := i.clone()
	mutate(after, c.cfg.Clock.Now())
	if err := c.commit(c.replace(after)); err != nil {
		c.cfg.Log.Error("Failed to save a report about a VM", "instance", id, "err", err)
		return
	}
	if after.ended() {
		c.life.Wake(id)
	}
}
