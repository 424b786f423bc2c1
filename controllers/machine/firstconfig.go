package machine

import (
	"context"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// noMachineConfiguration is the problem of user data with a placeholder that this fleet does not replace.
const noMachineConfiguration = "this fleet runs without --machine-configuration; set it, or remove the placeholder"

// readConfig looks for the configuration that the machine boots with.
func (c *Controller) readConfig(ctx context.Context, p *pass) error {
	if c.cfg.FirstConfig == nil {
		p.world.Config = lifecycle.ConfigFact{Read: true, Problem: noMachineConfiguration}
		return nil
	}
	key := objectcache.Key(p.world.Machine)
	c.awaitConfig.add(key) // before the look, so that a change during it is not missed
	values, problem, err := c.cfg.FirstConfig(ctx, p.world.Machine)
	if err != nil || problem == "" {
		c.awaitConfig.remove(key)
	}
	if err != nil {
		return err
	}
	p.world.Config = lifecycle.ConfigFact{Read: true, Problem: problem, Values: values}
	return nil
}

// FirstConfigChanged enqueues the machines that have no configuration to boot with: a MachineConfigPool has changed.
func (c *Controller) FirstConfigChanged() {
	for key := range c.awaitConfig.take() {
		c.runner.Enqueue(key)
	}
}

// placeholders returns the values of the placeholders in the user data.
func (p *pass) placeholders() map[string]string {
	values := map[string]string{v1alpha1.PlaceholderBootstrapToken: p.token, v1alpha1.PlaceholderMachineName: p.world.Machine.Name}
	maps.Copy(values, p.world.Config.Values)
	return values
}

// awaitConfig has the machines without a configuration to boot with. One that is gone is enqueued once more, and forgotten.
type awaitConfig struct {
	mu   sync.Mutex
	keys map[types.NamespacedName]bool
}

func newAwaitConfig() *awaitConfig { return &awaitConfig{keys: map[types.NamespacedName]bool{}} }

func (a *awaitConfig) add(key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys[key] = true
}

func (a *awaitConfig) remove(key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.keys, key)
}

// take returns all of them, and forgets them.
func (a *awaitConfig) take() map[types.NamespacedName]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.keys
	a.keys = map[types.NamespacedName]bool{}
	return taken
}
