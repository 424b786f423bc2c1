package drivertest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
)

// OverSocket serves a driver on a unix socket until the test ends, and returns the client of that:
// the driver as a fleet sees it that runs the driver in a separate process.
func OverSocket(t *testing.T, d driver.Driver) *plugin.Client {
	t.Helper()
	folder, err := os.MkdirTemp("", "mcf") //nolint:usetesting // the name of t.TempDir() is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(folder, "driver.sock")
	listener, err := plugin.Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- plugin.ServeOn(ctx, listener, plugin.Served{Driver: d}) }()
	client, err := plugin.Dial(ctx, plugin.Settings{Provider: "test", Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	if err := client.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return client
}
