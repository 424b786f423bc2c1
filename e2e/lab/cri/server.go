//go:build linux

package cri

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/utils/clock"
)

// Config configures a Server.
type Config struct {
	// Dir is the folder for the files of containers. See container.Config.
	Dir string
	// PodIP is the address of all pods.
	PodIP string
	// ForcedEnv is put into the environment of each container, and overrides its own.
	ForcedEnv map[string]string
	// Images is a folder with programs that are images: files called NAME:TAG, or NAME for every other
	// tag, where NAME is the last part of the name of the image. It is read when a container starts.
	// "" means that there are none.
	Images string
	// Clock is the source of timestamps.
	Clock clock.Clock
}

// Server is the runtime.
type Server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	config Config
	stream streaming.Server // set before the first request

	mu         sync.Mutex
	sandboxes  map[string]*sandbox
	containers map[string]*containerRecord
	pulled     map[string]bool
}

// NewServer returns a runtime without pods.
func NewServer(config Config) *Server {
	return &Server{
		config:     config,
		sandboxes:  map[string]*sandbox{},
		containers: map[string]*containerRecord{},
		pulled:     map[string]bool{},
	}
}

// Serve serves a kubelet until ctx ends. Containers that still run are killed.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	stopStreams, err := s.serveStreams(ctx)
	if err != nil {
		return err
	}
	defer stopStreams()
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, s)
	runtimeapi.RegisterImageServiceServer(server, s)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	defer s.killAll()
	if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serving the container runtime: %w", err)
	}
	return nil
}

func (s *Server) killAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.containers {
		c.kill()
		c.wait()
	}
}

// Version returns the name and version of the runtime.
func (s *Server) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "lab", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

// Status always reports that the runtime is ready.
func (s *Server) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true},
			{Type: runtimeapi.NetworkReady, Status: true},
		}},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Name: ""}},
	}, nil
}

// RuntimeConfig returns no configuration of systemd.
func (s *Server) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	linux := &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}
	return &runtimeapi.RuntimeConfigResponse{Linux: linux}, nil
}

// UpdateRuntimeConfig ignores the ranges of pod addresses.
func (s *Server) UpdateRuntimeConfig(
	context.Context, *runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// newID returns a new name for a sandbox or container.
func newID() string {
	id := make([]byte, 32)
	_, _ = rand.Read(id) // It never fails.
	return hex.EncodeToString(id)
}

func notFound(what, id string) error { return status.Errorf(codes.NotFound, "no %s %q", what, id) }

// matches reports whether labels match a selector.
func matches(selector, labels map[string]string) bool {
	for key, value := range selector {
		if actual, ok := labels[key]; !ok || actual != value {
			return false
		}
	}
	return true
}
