package driver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Registry finds the driver of a provider. The answers of its drivers are checked, see Checked. It
// is immutable.
type Registry struct{ drivers map[string]Driver }

// NewRegistry returns a registry of drivers by provider name, as in MachineClass.provider.
func NewRegistry(drivers map[string]Driver) *Registry {
	answering := make(map[string]Driver, len(drivers))
	for provider, d := range drivers {
		answering[provider] = Checked(d)
	}
	return &Registry{answering}
}

// Get returns the driver of a provider. The error for an unknown one names the registered ones.
func (r *Registry) Get(provider string) (Driver, error) {
	if found, ok := r.drivers[provider]; ok {
		return found, nil
	}
	if len(r.drivers) == 0 {
		return nil, fmt.Errorf("unknown provider %q: no driver is registered", provider)
	}
	return nil, fmt.Errorf("unknown provider %q; registered are %s", provider, strings.Join(r.Providers(), ", "))
}

// Sweeper returns the Sweeper of a provider's driver. ok is false when the provider is unknown or
// its driver has none.
func (r *Registry) Sweeper(provider string) (sweeper Sweeper, ok bool) {
	return SweeperOf(r.drivers[provider])
}

// Providers returns the names of all providers, in order.
func (r *Registry) Providers() []string { return slices.Sorted(maps.Keys(r.drivers)) }
