package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
)

// makeDrivers returns the drivers that the flags enable. Those in other processes are connected for as long as this process lives: the
// hand-over of slots, after ctx has ended, needs them. now is the time of the control cluster.
func makeDrivers(ctx context.Context, o options, build string, fence *fence.Fence, metrics *telemetry.DriverMetrics, now func() time.Time) (map[string]driver.Driver, error) {
	drivers := map[string]driver.Driver{}
	if len(o.simulatedCloudEndpoints) > 0 {
		d, err := simulated.New(simulated.Config{Endpoints: o.simulatedCloudEndpoints, Wrap: func(next http.RoundTripper) http.RoundTripper {
			return fence.Transport(metrics.Transport(simulated.Provider, simulated.Service, next))
		}})
		if err != nil {
			return nil, fmt.Errorf("--simulated-cloud-endpoint: %w", err)
		}
		drivers[simulated.Provider] = d
	}
	sockets, err := o.sockets()
	if err != nil {
		return nil, fmt.Errorf("--driver-socket: %w", err)
	}
	for provider, socket := range sockets {
		d, err := plugin.Dial(context.WithoutCancel(ctx), plugin.Settings{Provider: provider, Socket: socket, Fleet: build, Ownership: ownershipOf, Share: fence.Share, Now: now})
		if err != nil {
			return nil, fmt.Errorf("--driver-socket: %w", err)
		}
		drivers[provider] = d
	}
	return drivers, nil
}

// sockets returns the sockets of drivers in other processes, by provider.
func (o *options) sockets() (map[string]string, error) {
	sockets := map[string]string{}
	for _, word := range o.driverSockets {
		provider, socket, _ := strings.Cut(word, "=")
		switch {
		case provider == "" || socket == "":
			return nil, fmt.Errorf("expected PROVIDER=PATH, got %q; name a provider and a socket, such as azure=/run/drivers/azure.sock", word)
		case sockets[provider] != "" || provider == simulated.Provider && len(o.simulatedCloudEndpoints) > 0:
			return nil, fmt.Errorf("expected one driver for a provider, got a second one for %q; remove one", provider)
		}
		if err := plugin.CheckSocket(socket); err != nil {
			return nil, err
		}
		sockets[provider] = socket
	}
	return sockets, nil
}

// ownershipOf returns the ownership under which the work of a context is done, for drivers in other processes.
func ownershipOf(ctx context.Context) (plugin.Ownership, bool) {
	o, ok := telemetry.OwnerFrom(ctx)
	return plugin.Ownership{Replica: o.Replica, Session: o.Session, Slot: o.Slot, Epoch: o.Epoch, Leader: o.Leader}, ok
}
