//go:build linux

package cri

import (
	"context"
	"fmt"
	"os"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandbox has what the containers of a pod share: here only a few fields.
type sandbox struct {
	id      string
	config  *runtimeapi.PodSandboxConfig
	created int64 // ns since 1970, as everywhere in this API
	ready   bool
}

func (b *sandbox) state() runtimeapi.PodSandboxState {
	if b.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

// RunPodSandbox creates a sandbox.
func (s *Server) RunPodSandbox(_ context.Context, r *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	if dir := r.Config.GetLogDirectory(); dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("creating the pod's folder for logs: %w", err)
		}
	}
	b := &sandbox{id: newID(), config: r.Config, created: s.config.Clock.Now().UnixNano(), ready: true}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sandboxes[b.id] = b
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: b.id}, nil
}

// StopPodSandbox kills the containers of a sandbox. The kubelet has stopped them gracefully before.
func (s *Server) StopPodSandbox(_ context.Context, r *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	for _, c := range s.stopSandbox(r.PodSandboxId) {
		c.kill()
		c.wait()
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

// stopSandbox records that a sandbox has ended, and returns its containers.
func (s *Server) stopSandbox(id string) []*containerRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := s.sandboxes[id]; ok {
		b.ready = false
	}
	var containers []*containerRecord
	for _, c := range s.containers {
		if c.sandbox.id == id {
			containers = append(containers, c)
		}
	}
	return containers
}

// RemovePodSandbox removes a sandbox and its containers, and ends them if they run.
func (s *Server) RemovePodSandbox(_ context.Context, r *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	for _, c := range s.stopSandbox(r.PodSandboxId) {
		if err := s.remove(c); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sandboxes, r.PodSandboxId)
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// PodSandboxStatus describes a sandbox.
func (s *Server) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.sandboxes[r.PodSandboxId]
	if !ok {
		return nil, notFound("sandbox", r.PodSandboxId)
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id: b.id, Metadata: b.config.Metadata, State: b.state(), CreatedAt: b.created,
		Labels: b.config.Labels, Annotations: b.config.Annotations,
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: s.config.PodIP},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: b.config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
		}},
	}}, nil
}

// ListPodSandbox lists sandboxes.
func (s *Server) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	filter, response := r.GetFilter(), &runtimeapi.ListPodSandboxResponse{}
	for _, b := range s.sandboxes {
		if id := filter.GetId(); id != "" && id != b.id {
			continue
		}
		if state := filter.GetState(); state != nil && state.State != b.state() {
			continue
		}
		if !matches(filter.GetLabelSelector(), b.config.Labels) {
			continue
		}
		response.Items = append(response.Items, &runtimeapi.PodSandbox{
			Id: b.id, Metadata: b.config.Metadata, State: b.state(), CreatedAt: b.created,
			Labels: b.config.Labels, Annotations: b.config.Annotations,
		})
	}
	return response, nil
}
