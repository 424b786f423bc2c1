//go:build linux

package cri

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/container"
)

// containerRecord is a container from its creation to its removal.
type containerRecord struct {
	id      string
	sandbox *sandbox
	config  *runtimeapi.ContainerConfig
	created int64
	log     *logFile

	mu       sync.Mutex
	state    runtimeapi.ContainerState
	process  *container.Container // nil until it is started
	started  int64
	finished int64
	exitCode int
	ended    chan struct{} // closed when it has ended and its log is complete
}

var errStarted = errors.New("it was started before")

// start starts the process, and follows it to its end.
func (c *containerRecord) start(config container.Config) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != runtimeapi.ContainerState_CONTAINER_CREATED {
		return errStarted
	}
	if err := c.log.open(); err != nil {
		return err
	}
	started := config.Clock.Now().UnixNano() // it may have ended before Start returns
	process, drained, err := startLogged(config, c.log)
	if err != nil {
		return errors.Join(err, c.log.close())
	}
	c.process, c.started = process, started
	c.state = runtimeapi.ContainerState_CONTAINER_RUNNING
	go func() {
		<-process.Done()
		drained()
		_ = c.log.close() // All output has been written before.
		exit := process.Exit()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.state = runtimeapi.ContainerState_CONTAINER_EXITED
		c.exitCode, c.finished = exit.Code, exit.At.UnixNano()
		close(c.ended)
	}()
	return nil
}

// startLogged starts a container whose output is logged. drained waits until all of it is logged.
func startLogged(config container.Config, log *logFile) (_ *container.Container, drained func(), err error) {
	var done sync.WaitGroup
	for stream, target := range map[string]**os.File{"stdout": &config.Stdout, "stderr": &config.Stderr} {
		read, write, err := os.Pipe()
		if err != nil {
			return nil, nil, fmt.Errorf("creating a pipe: %w", err)
		}
		*target = write
		// The container has its own copy by then. The stream does not end before this one is closed.
		defer write.Close()
		done.Go(func() {
			defer read.Close()
			log.copy(stream, read)
		})
	}
	process, err := container.Start(config)
	return process, done.Wait, err
}

// current returns the process, if it was started.
func (c *containerRecord) current() *container.Container {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process
}

func (c *containerRecord) terminate() {
	if process := c.current(); process != nil {
		process.Terminate()
	}
}

func (c *containerRecord) kill() {
	if process := c.current(); process != nil {
		process.Kill()
	}
}

// wait waits for the end of a container that was killed.
func (c *containerRecord) wait() {
	if c.current() != nil {
		<-c.ended
	}
}

func (c *containerRecord) status() *runtimeapi.ContainerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	status := &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.config.Metadata, State: c.state,
		CreatedAt: c.created, StartedAt: c.started, FinishedAt: c.finished, ExitCode: int32(c.exitCode),
		Image: c.config.Image, ImageRef: c.config.Image.GetImage(), ImageId: c.config.Image.GetImage(),
		Labels: c.config.Labels, Annotations: c.config.Annotations, Mounts: c.config.Mounts, LogPath: c.log.path,
	}
	if c.state == runtimeapi.ContainerState_CONTAINER_EXITED {
		if status.Reason = "Completed"; c.exitCode != 0 {
			status.Reason = "Error"
		}
	}
	return status
}

// dir is the folder for the files of a container.
func (s *Server) dir(c *containerRecord) string { return filepath.Join(s.config.Dir, c.id) }
