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

// firstConfigs are the configurations that machines boot with.
type firstConfigs struct {
	// values is Config.FirstConfig.
	values func(ctx context.Context, m *v1alpha1.Machine) (values map[string]string, problem string, err error)
	wake   func(types.NamespacedName)

	mu       sync.Mutex
	awaiting map[types.NamespacedName]bool // machines without one; one that is gone is enqueued once more, and forgotten
}

// noMachineConfiguration is the problem of user data with a placeholder that this fleet does not
// replace.
const noMachineConfiguration = "this fleet runs without --machine-configuration; set it, or remove the placeholder"

// read looks for the configuration that the machine boots with.
func (f *firstConfigs) read(ctx context.Context, p *pass) error {
	if f.values == nil {
		p.world.Config = lifecycle.ConfigFact{Read: true, Problem: noMachineConfiguration}
		return nil
	}
	key := objectcache.Key(p.world.Machine)
	f.await(key) // before the look, so that a change during it is not missed
	values, problem, err := f.values(ctx, p.world.Machine)
	if err != nil || problem == "" {
		f.stopAwaiting(key)
	}
	if err != nil {
		return err
	}
	p.world.Config = lifecycle.ConfigFact{Read: true, Problem: problem, Values: values}
	return nil
}

// changed enqueues the machines of a namespace, "" for all, that have no configuration to boot
// with: a MachineConfigPool has changed.
func (f *firstConfigs) changed(namespace string) {
	for _, key := range f.take(namespace) {
		f.wake(key)
	}
}

// placeholders returns the values of the placeholders in the user data.
func (p *pass) placeholders() map[string]string {
	values := map[string]string{v1alpha1.PlaceholderBootstrapToken: p.token, v1alpha1.PlaceholderMachineName: p.world.Machine.Name}
	maps.Copy(values, p.world.Config.Values)
	return values
}

func (f *firstConfigs) await(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.awaiting[key] = true
}

func (f *firstConfigs) stopAwaiting(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.awaiting, key)
}

// take returns the machines of a namespace without a configuration, and forgets them.
func (f *firstConfigs) take(namespace string) (taken []types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.awaiting {
		if namespace == "" || key.Namespace == namespace {
			taken = append(taken, key)
			delete(f.awaiting, key)
		}
	}
	return taken
}
