//go:build linux

package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/container"
)

func (s *Server) container(id string) (*containerRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.containers[id]
	if !ok {
		return nil, notFound("container", id)
	}
	return c, nil
}

// CreateContainer records a container.
func (s *Server) CreateContainer(_ context.Context, r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.sandboxes[r.PodSandboxId]
	if !ok {
		return nil, notFound("sandbox", r.PodSandboxId)
	}
	c := &containerRecord{
		id: newID(), sandbox: b, config: r.Config, created: s.config.Clock.Now().UnixNano(),
		log:   &logFile{path: filepath.Join(b.config.GetLogDirectory(), r.Config.GetLogPath()), clock: s.config.Clock},
		ended: make(chan struct{}),
	}
	s.containers[c.id] = c
	return &runtimeapi.CreateContainerResponse{ContainerId: c.id}, nil
}

// StartContainer starts the process of a container.
func (s *Server) StartContainer(_ context.Context, r *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	c, err := s.container(r.ContainerId)
	if err != nil {
		return nil, err
	}
	program, hasProgram := s.program(image(c.config.Image))
	args, err := command(c.config, program)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	security := c.config.GetLinux().GetSecurityContext()
	config := container.Config{
		Dir: s.dir(c), Hostname: c.sandbox.config.GetHostname(),
		Args: args, Env: s.environment(c.config), WorkingDir: c.config.WorkingDir,
		ReadOnlyRoot: security.GetReadonlyRootfs(), User: user(security), Clock: s.config.Clock,
	}
	for _, m := range c.config.Mounts {
		config.Mounts = append(config.Mounts, container.Mount{Source: m.HostPath, Target: m.ContainerPath, ReadOnly: m.Readonly})
	}
	if hasProgram {
		config.Mounts = append(config.Mounts, program)
	}
	if err := c.start(config); err != nil {
		return nil, status.Errorf(codes.Unknown, "starting container %s: %v", c.config.GetMetadata().GetName(), err)
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

// environment returns that of a container: first the defaults, then its own, then the forced one.
func (s *Server) environment(config *runtimeapi.ContainerConfig) []string {
	env := map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp"}
	for _, variable := range config.Envs {
		env[variable.Key] = string(variable.Value)
	}
	maps.Copy(env, s.config.ForcedEnv)
	var list []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

func user(security *runtimeapi.LinuxContainerSecurityContext) container.User {
	user := container.User{UID: uint32(security.GetRunAsUser().GetValue()), GID: uint32(security.GetRunAsGroup().GetValue())}
	for _, group := range security.GetSupplementalGroups() {
		user.Groups = append(user.Groups, uint32(group))
	}
	return user
}

// StopContainer stops a container with SIGTERM, and kills it after the timeout. It returns when it
// has ended.
func (s *Server) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	c, err := s.container(r.ContainerId)
	if status.Code(err) == codes.NotFound {
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	if c.current() == nil {
		return &runtimeapi.StopContainerResponse{}, nil
	}
	c.terminate()
	timer := s.config.Clock.NewTimer(time.Duration(r.Timeout) * time.Second)
	defer timer.Stop()
	select {
	case <-c.ended:
		return &runtimeapi.StopContainerResponse{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C():
	}
	c.kill()
	c.wait()
	return &runtimeapi.StopContainerResponse{}, nil
}

// RemoveContainer forgets a container, and ends it if it runs.
func (s *Server) RemoveContainer(_ context.Context, r *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	c, err := s.container(r.ContainerId)
	if status.Code(err) == codes.NotFound {
		return &runtimeapi.RemoveContainerResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &runtimeapi.RemoveContainerResponse{}, s.remove(c)
}

func (s *Server) remove(c *containerRecord) error {
	c.kill()
	c.wait()
	if err := os.RemoveAll(s.dir(c)); err != nil {
		return fmt.Errorf("removing the files of a container: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.containers, c.id)
	return nil
}

// ListContainers lists containers.
func (s *Server) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	filter, response := r.GetFilter(), &runtimeapi.ListContainersResponse{}
	for _, c := range s.containers {
		if id := filter.GetId(); id != "" && id != c.id {
			continue
		}
		if id := filter.GetPodSandboxId(); id != "" && id != c.sandbox.id {
			continue
		}
		st := c.status()
		if state := filter.GetState(); state != nil && state.State != st.State {
			continue
		}
		if !matches(filter.GetLabelSelector(), st.Labels) {
			continue
		}
		response.Containers = append(response.Containers, &runtimeapi.Container{
			Id: st.Id, PodSandboxId: c.sandbox.id, Metadata: st.Metadata, State: st.State, CreatedAt: st.CreatedAt,
			Image: st.Image, ImageRef: st.ImageRef, ImageId: st.ImageId, Labels: st.Labels, Annotations: st.Annotations,
		})
	}
	return response, nil
}

// ContainerStatus describes a container.
func (s *Server) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	c, err := s.container(r.ContainerId)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatusResponse{Status: c.status()}, nil
}

// ReopenContainerLog continues in a new file, when the kubelet has renamed the old one.
func (s *Server) ReopenContainerLog(
	_ context.Context, r *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	c, err := s.container(r.ContainerId)
	if err != nil {
		return nil, err
	}
	if err := c.log.open(); err != nil {
		return nil, err
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

// UpdateContainerResources has no effect: there are no limits.
func (s *Server) UpdateContainerResources(
	context.Context, *runtimeapi.UpdateContainerResourcesRequest,
) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// ExecSync runs a command in a container, for a probe or a hook.
func (s *Server) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	c, err := s.container(r.ContainerId)
	if err != nil {
		return nil, err
	}
	process := c.current()
	if process == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "container %q does not run", r.ContainerId)
	}
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.Timeout)*time.Second)
		defer cancel()
	}
	var stdout, stderr bytes.Buffer
	code, err := process.Exec(ctx, r.Cmd, nil, &stdout, &stderr)
	var missing *exec.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, status.Errorf(codes.DeadlineExceeded, "command %q timed out", strings.Join(r.Cmd, " "))
	case errors.As(err, &missing) || errors.Is(err, os.ErrNotExist):
		const notFoundCode = 127 // as in a shell
		return &runtimeapi.ExecSyncResponse{ExitCode: notFoundCode, Stderr: []byte(err.Error())}, nil
	case err != nil:
		return nil, status.Errorf(codes.Unknown, "running %q: %v", strings.Join(r.Cmd, " "), err)
	}
	return &runtimeapi.ExecSyncResponse{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), ExitCode: int32(code)}, nil
}
