package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// newDrivers returns the drivers that the flags name. They are connected for as long as this
// process lives: the hand-over of slots, after ctx has ended, needs them. share is the part of the
// fleet's work that this replica has, and now the time of the control cluster.
func newDrivers(
	ctx context.Context, o options, build string, share func() float64, now func() time.Time,
) (map[string]driver.Driver, error) {
	drivers := map[string]driver.Driver{}
	sockets, err := o.sockets()
	if err != nil {
		return nil, fmt.Errorf("--driver-socket: %w", err)
	}
	for provider, socket := range sockets {
		d, err := plugin.Dial(context.WithoutCancel(ctx), plugin.Settings{
			Provider: provider, Socket: socket, Fleet: build, Ownership: ownershipOf, Share: share, Now: now,
		})
		if err != nil {
			return nil, fmt.Errorf("--driver-socket: %w", err)
		}
		drivers[provider] = d
	}
	return drivers, nil
}

// sockets returns the sockets of drivers, by provider.
func (o *options) sockets() (map[string]string, error) {
	sockets := map[string]string{}
	for _, word := range o.driverSockets {
		provider, socket, _ := strings.Cut(word, "=")
		switch {
		case provider == "" || socket == "":
			return nil, fmt.Errorf("expected PROVIDER=PATH, got %q; name a provider and a socket, such as azure=/run/drivers/azure.sock", word)
		case sockets[provider] != "":
			return nil, fmt.Errorf("expected one driver for a provider, got a second one for %q; remove one", provider)
		}
		if err := plugin.CheckSocket(socket); err != nil {
			return nil, err
		}
		sockets[provider] = socket
	}
	return sockets, nil
}

// ownershipOf returns the ownership under which the work of a context is done, for drivers in other
// processes.
func ownershipOf(ctx context.Context) (plugin.Ownership, bool) {
	o, ok := telemetry.OwnerFrom(ctx)
	return plugin.Ownership{Replica: o.Replica, Session: o.Session, Slot: o.Slot, Epoch: o.Epoch, Leader: o.Leader}, ok
}
