package cloudsim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

const (
	// lifeWorkers step VMs; a step is a short write.
	lifeWorkers = 4
	// retryWrite is when a step that could not be written is tried again.
	retryWrite = time.Second
	// defaultForgetAfter replaces a zero Settings.ForgetAfter.
	defaultForgetAfter = time.Hour
)

// Cloud is the simulated cloud.
type Cloud struct {
	cfg    Config
	offers catalog
	store  *store
	disks  disks
	log    *callLog
	dice   *dice
	life   *guest.Loop[string]
	// lastCall numbers calls; its upper half counts the starts of this cloud.
	lastCall atomic.Uint64
	// closing is closed when calls that are in progress have to end.
	closing chan struct{}

	mu       sync.Mutex
	settings savedSettings
	// instances by ID; its values are immutable.
	instances map[string]*instance
	// order has the IDs in the order of the creation of the VMs, which is that of the IDs.
	order   []string
	byTag   map[string]map[string]struct{} // "key=value" → IDs
	byToken map[string]string              // client token → ID
	volumes map[string]*cloudapi.Volume    // by ID; its values are immutable
	// leftovers by ID; its values are immutable.
	leftovers map[string]*cloudapi.Leftover
	// logged are calls that are in the call log, and need not be kept in the store any longer.
	logged []uint64
}

// Open opens the cloud in cfg.StateDir, or creates a new one. VMs continue with Run.
func Open(cfg Config) (*Cloud, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("create the state folder: %w", err)
	}
	c := &Cloud{
		cfg: cfg, offers: newCatalog(), dice: newDice(cfg.Seed, 0), closing: make(chan struct{}),
		instances: map[string]*instance{}, byTag: map[string]map[string]struct{}{}, byToken: map[string]string{},
		volumes: map[string]*cloudapi.Volume{}, leftovers: map[string]*cloudapi.Leftover{},
	}
	c.life = guest.NewLoop(cfg.Clock, c.step)
	var err error
	if c.store, err = openStore(filepath.Join(cfg.StateDir, "state.db")); err != nil {
		return nil, err
	}
	c.disks = disks(filepath.Join(cfg.StateDir, VolumesFolder))
	if err = c.restore(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// restore loads the state of the last run of this cloud.
func (c *Cloud) restore() error {
	starts, err := c.store.sequence(bucketMeta)
	if err != nil {
		return err
	}
	c.lastCall.Store(starts << 32)
	all, err := c.store.load()
	if err != nil {
		return err
	}
	for _, i := range all.instances {
		c.remember(i)
	}
	for _, v := range all.volumes {
		c.volumes[v.ID] = v
	}
	for _, l := range all.leftovers {
		c.leftovers[l.ID] = l
	}
	if err = c.disks.restore(c.volumes); err != nil {
		return err
	}
	c.settings = savedSettings{Start: c.cfg.Settings, Current: c.cfg.Settings}
	if all.settings != nil && sameSettings(all.settings.Start, c.cfg.Settings) {
		c.settings = *all.settings
	}
	if err = c.store.apply(change{settings: &c.settings}); err != nil {
		return err
	}
	if c.log, err = openCallLog(c.cfg.CallLog); err != nil {
		return err
	}
	return c.logUnanswered(all.calls)
}

// logUnanswered logs the calls that took effect and were not answered because the last run of this
// cloud ended.
func (c *Cloud) logUnanswered(calls []cloudapi.Call) error {
	for _, call := range calls {
		call.End, call.Error = c.cfg.Clock.Now(), cloudapi.CallTimeout
		if err := c.log.write(call); err != nil {
			return err
		}
		c.logged = append(c.logged, call.ID)
	}
	return nil
}

// Run advances VMs until ctx ends; calls are always answered, but later changes of VMs happen only
// while it runs. It runs once.
func (c *Cloud) Run(ctx context.Context) error {
	c.resume()
	group, ctx := errgroup.WithContext(ctx)
	for _, host := range c.cfg.Hosts {
		group.Go(func() error { return host.Run(ctx, hostView{c}) })
	}
	group.Go(func() error {
		c.life.Run(ctx, lifeWorkers)
		return nil
	})
	return group.Wait()
}

// resume switches on again the VMs that were on when the last run of this cloud ended, before the
// hosts run: a host ends everything else that it finds running.
func (c *Cloud) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Clock.Now()
	for _, id := range c.order {
		i := c.instances[id]
		if host := c.cfg.Hosts[i.API.Boot]; host != nil && i.poweredOn(now) {
			vm := c.guestVM(i)
			vm.Resumed = true
			host.PowerOn(vm)
		}
		c.life.Wake(id)
	}
}

// Close cancels the calls in progress and closes the files. The handler must not be called any
// more.
func (c *Cloud) Close() error {
	close(c.closing)
	c.life.Stop()
	var errs []error
	if c.log != nil {
		errs = append(errs, c.log.close())
	}
	return errors.Join(append(errs, c.store.close())...)
}

// remember puts an instance into the maps; an older version of it is replaced. c.mu is held, or the
// cloud is not shared.
func (c *Cloud) remember(i *instance) {
	id := i.API.ID
	if _, known := c.instances[id]; !known {
		c.order = append(c.order, id)
		for key, value := range i.API.Tags {
			for _, tag := range []string{key, key + "=" + value} {
				if c.byTag[tag] == nil {
					c.byTag[tag] = map[string]struct{}{}
				}
				c.byTag[tag][id] = struct{}{}
			}
		}
		if i.API.ClientToken != "" {
			c.byToken[i.API.ClientToken] = id
		}
	}
	c.instances[id] = i
}

// forget takes an instance out of the maps. c.mu is held.
func (c *Cloud) forget(id string) {
	i := c.instances[id]
	delete(c.instances, id)
	delete(c.byToken, i.API.ClientToken)
	for key, value := range i.API.Tags {
		for _, tag := range []string{key, key + "=" + value} {
			delete(c.byTag[tag], id)
			if len(c.byTag[tag]) == 0 {
				delete(c.byTag, tag)
			}
		}
	}
	if at, found := slices.BinarySearch(c.order, id); found {
		c.order = slices.Delete(c.order, at, at+1)
	}
}

// commit stores a change, on disk first. c.mu is held.
func (c *Cloud) commit(ch change) error {
	ch.logged = c.logged
	for _, v := range ch.volumes {
		if err := c.disks.provide(v.ID); err != nil {
			return err
		}
	}
	if err := c.store.apply(ch); err != nil {
		return err
	}
	c.logged = nil
	for _, i := range ch.instances {
		c.remember(i)
	}
	for _, id := range ch.forgetInstances {
		c.forget(id)
	}
	for _, v := range ch.volumes {
		c.volumes[v.ID] = v
	}
	for _, id := range ch.forgetVolumes {
		delete(c.volumes, id)
		if err := c.disks.remove(id); err != nil { // The next run of this cloud retries.
			c.cfg.Log.Error("The contents of a volume were not removed", "volume", id, "err", err)
		}
	}
	for _, l := range ch.leftovers {
		c.leftovers[l.ID] = l
	}
	for _, id := range ch.forgetLeftovers {
		delete(c.leftovers, id)
	}
	if ch.settings != nil {
		c.settings = *ch.settings
	}
	return nil
}

// currentSettings are immutable; they are replaced.
func (c *Cloud) currentSettings() cloudapi.Settings {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settings.Current
}
