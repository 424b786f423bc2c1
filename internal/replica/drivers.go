package replica

import (
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// fencedDrivers puts the Fence before each driver, and a span and metrics around each call. Secrets are removed from answers before these.
func (f *Replica) fencedDrivers(around Environment) (*driver.Registry, error) {
	metrics := telemetry.NewDriverMetrics(around.Registry, clock.RealClock{})
	drivers, err := around.Drivers(f.session.fence, metrics, f.wall.Now)
	if err != nil {
		return nil, err
	}
	for provider, d := range drivers {
		drivers[provider] = &telemetry.TracedDriver{Driver: f.session.fence.Driver(driver.Redacted(d)), Provider: provider, Tracer: f.tracer, Metrics: metrics}
	}
	return driver.NewRegistry(drivers), nil
}
