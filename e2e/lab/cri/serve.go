package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/mount-utils"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// VolumesConfig configures a driver. All fields are required.
type VolumesConfig struct {
	// KubeletDir is the kubelet's folder, where it looks for drivers.
	KubeletDir string
	// NodeID is the cloud's ID of the machine.
	NodeID string
	// Volumes has a folder for each volume of the cloud, called by its ID, with its contents.
	Volumes string
	// Attached has a file for each volume that is attached to the machine, called by its ID.
	Attached string
	Mounter  mount.Interface
	Log      *slog.Logger
}

// endpoint is the socket on which the driver serves.
func (c *VolumesConfig) endpoint() string {
	return filepath.Join(c.KubeletDir, "plugins", cloudapi.CSIDriver, "csi.sock")
}

// registry is the socket that the kubelet's plugin watcher finds.
func (c *VolumesConfig) registry() string {
	return filepath.Join(c.KubeletDir, "plugins_registry", cloudapi.CSIDriver+"-reg.sock")
}

// ServeVolumes serves a kubelet until ctx ends. The kubelet may start before it or after it.
func ServeVolumes(ctx context.Context, config VolumesConfig) error {
	driver := grpc.NewServer()
	spec.RegisterIdentityServer(driver, identity{})
	spec.RegisterNodeServer(driver, &node{config: config})
	registration := grpc.NewServer()
	registrationv1.RegisterRegistrationServer(registration, &registrar{config: config})

	// A kubelet that finds the second socket connects to the first.
	var listeners []net.Listener
	for _, path := range []string{config.endpoint(), config.registry()} {
		listener, err := listen(ctx, path)
		if err != nil {
			closeAll(listeners)
			return err
		}
		listeners = append(listeners, listener)
	}
	group, ctx := errgroup.WithContext(ctx)
	for i, server := range []*grpc.Server{driver, registration} {
		stop := context.AfterFunc(ctx, server.Stop)
		defer stop()
		group.Go(func() error {
			if err := server.Serve(listeners[i]); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				return fmt.Errorf("serving the CSI driver: %w", err)
			}
			return nil
		})
	}
	return group.Wait()
}

// listen creates a socket. A socket of an earlier run of the driver is removed.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("creating a folder for a socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("removing an old socket: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening for the kubelet: %w", err)
	}
	return listener, nil
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		_ = l.Close()
	}
}

// registrar registers the driver with the kubelet.
type registrar struct {
	registrationv1.UnimplementedRegistrationServer

	config VolumesConfig
}

// GetInfo returns the name and the endpoint of the driver.
func (r *registrar) GetInfo(context.Context, *registrationv1.InfoRequest) (*registrationv1.PluginInfo, error) {
	return &registrationv1.PluginInfo{
		Type: registrationv1.CSIPlugin, Name: cloudapi.CSIDriver, Endpoint: r.config.endpoint(), SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus receives the result. The kubelet retries by itself.
func (r *registrar) NotifyRegistrationStatus(
	_ context.Context, s *registrationv1.RegistrationStatus,
) (*registrationv1.RegistrationStatusResponse, error) {
	if !s.PluginRegistered {
		r.config.Log.Error("The kubelet has not registered the CSI driver", "err", s.Error)
	}
	return &registrationv1.RegistrationStatusResponse{}, nil
}

// identity serves the name and the capabilities of the driver.
type identity struct {
	spec.UnimplementedIdentityServer
}

// GetPluginInfo names the driver.
func (identity) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: cloudapi.CSIDriver, VendorVersion: "1"}, nil
}

// GetPluginCapabilities reports that this is the node part only.
func (identity) GetPluginCapabilities(context.Context, *spec.GetPluginCapabilitiesRequest) (*spec.GetPluginCapabilitiesResponse, error) {
	return &spec.GetPluginCapabilitiesResponse{}, nil
}

// Probe reports that the driver serves.
func (identity) Probe(context.Context, *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	return &spec.ProbeResponse{}, nil
}
