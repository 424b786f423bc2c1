package replica

import (
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// fencedDrivers puts the Fence before each driver, and a span and metrics around each call. Secrets
// are removed from answers before these.
func (d *deps) fencedDrivers(around Environment) (*driver.Registry, error) {
	metrics := telemetry.NewDriverMetrics(around.Registry, clock.RealClock{})
	drivers, err := around.Drivers(d.session.fence.Share, d.wall.Now)
	if err != nil {
		return nil, err
	}
	for provider, of := range drivers {
		drivers[provider] = telemetry.TraceDriver(d.session.fence.Driver(driver.Redacted(of)), provider, d.tracer, metrics)
	}
	return driver.NewRegistry(drivers), nil
}
