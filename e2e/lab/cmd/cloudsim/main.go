// Command cloudsim is a simulated cloud: VMs behind an HTTP API, which boot as simulated Nodes or
// as real kubelets. See package cloudsim for its guarantees, and e2e/simulated/cloudapi for its
// API.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/csi"
)

// shutdownTime is how long calls that are in progress may take after SIGTERM.
const shutdownTime = 2 * time.Second

func main() {
	opts, err := parse(os.Args[1:], os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cloudsim:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err = run(ctx, opts, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cloudsim:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, opts options, log *slog.Logger) error {
	joined, err := connect(opts.kubeconfig)
	if err != nil {
		return err
	}
	hosts, err := newHosts(opts, joined, log)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", opts.listen)
	if err != nil {
		return fmt.Errorf("listen for calls: %w", err)
	}
	defer func() { _ = listener.Close() }() // The server closes it, once it serves.
	cloud, err := cloudsim.Open(cloudsim.Config{
		StateDir: opts.stateDir, CallLog: opts.callLog, Settings: opts.settings, Seed: opts.seed, Hosts: hosts, Log: log,
		KubeletNetwork: kubeletNetwork(listener),
	})
	if err != nil {
		return err
	}
	background := []func(context.Context) error{cloud.Run}
	if joined != nil {
		volumes, err := csi.New(csi.Config{
			Client: joined.client, Cloud: "http://" + listener.Addr().String(), HTTPClient: &http.Client{},
			Credentials: opts.settings.Credentials, Log: log,
		})
		if err != nil {
			return errors.Join(err, cloud.Close())
		}
		background = append(background, volumes.Run)
	}
	log.Info("cloudsim serves", "address", "http://"+listener.Addr().String(), "seed", opts.seed)
	server := &http.Server{
		Handler: cloud.Handler(), ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	return errors.Join(serve(ctx, server, listener, background), cloud.Close())
}

// kubeletNetwork returns the network of the VMs with a kubelet.
func kubeletNetwork(listener net.Listener) netip.Prefix {
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return cloudsim.LoopbackNetwork(address.AddrPort().Port())
}

// serve serves calls, and advances VMs, until ctx ends or one of them fails.
func serve(ctx context.Context, server *http.Server, listener net.Listener, background []func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, do := range background {
		group.Go(func() error { return do(ctx) })
	}
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve calls: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		if server.Shutdown(ending) != nil {
			return server.Close() // Some calls take longer: their connections are closed.
		}
		return nil
	})
	return group.Wait()
}
