package cloudsim_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// serveVariable makes this test binary a cloud that serves in the folder that it names, for tests
// that kill it.
const serveVariable = "CLOUDSIM_TEST_SERVE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(serveVariable); dir != "" {
		fmt.Fprintln(os.Stderr, serveUntilKilled(dir))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// serveUntilKilled runs a cloud until it is killed, and prints its URL.
func serveUntilKilled(dir string) error {
	cloud, err := cloudsim.Open(config(dir, cloudapi.Settings{
		Latency: map[cloudapi.Operation]cloudapi.Latency{
			cloudapi.OpCreateInstance: {Mean: milliseconds(20), Spread: milliseconds(20)},
			cloudapi.OpDeleteInstance: {Mean: milliseconds(20), Spread: milliseconds(20)},
		},
		BootTime: cloudapi.Latency{Mean: milliseconds(30)},
	}))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = cloud.Run(context.Background()) }()
	fmt.Fprintln(os.Stdout, "http://"+listener.Addr().String())
	return http.Serve(listener, cloud.Handler())
}

// config returns that of a cloud whose simulated VMs do nothing.
func config(dir string, settings cloudapi.Settings) cloudsim.Config {
	return cloudsim.Config{
		StateDir: dir, CallLog: filepath.Join(dir, "calls.jsonl"), Settings: settings, Seed: 1,
		Hosts: map[cloudapi.BootMode]guest.Host{cloudapi.BootSimulated: guest.Nowhere{}},
		Log:   slog.New(slog.DiscardHandler),
	}
}
