//go:build linux

package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// streams serves kubectl exec and port-forward, through the API server and the kubelet.
type streams struct {
	server *Server
}

var _ streaming.Runtime = streams{}

// serveStreams serves streams on a port of the loopback interface, until the returned function is
// called.
func (s *Server) serveStreams(ctx context.Context) (stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for streams: %w", err)
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: listener.Addr().String(), Path: "/"}
	handler, err := streaming.NewServer(config, streams{s})
	if err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("serving streams: %w", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // It ends when it is closed.
	}()
	s.stream = handler
	return func() {
		_ = server.Close()
		<-served
	}, nil
}

var errNoTerminals = status.Error(codes.Unimplemented, "this node has no terminals; omit -t")

// Exec returns the URL for running a command.
func (s *Server) Exec(_ context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	if r.Tty {
		return nil, errNoTerminals
	}
	if _, err := s.container(r.ContainerId); err != nil {
		return nil, err
	}
	return s.stream.GetExec(r)
}

// PortForward returns the URL for the ports of a pod.
func (s *Server) PortForward(_ context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return s.stream.GetPortForward(r)
}

// Exec runs a command in a container.
func (s streams) Exec(
	ctx context.Context, id string, cmd []string, in io.Reader, out, errOut io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize,
) error {
	c, err := s.server.container(id)
	if err != nil {
		return err
	}
	process := c.current()
	if process == nil {
		return status.Errorf(codes.FailedPrecondition, "container %q does not run", id)
	}
	code, err := process.Exec(ctx, cmd, in, writer(out), writer(errOut))
	if err != nil {
		return err
	}
	if code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("exit code %d", code), Code: code}
	}
	return nil
}

// writer keeps a nil interface nil.
func writer(w io.WriteCloser) io.Writer {
	if w == nil {
		return nil
	}
	return w
}

// Attach is not supported: the output of a container is in its log.
func (streams) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return errors.New("this node cannot attach to containers; kubectl logs -f shows what they write")
}

// PortForward connects a stream with a port of the machine.
func (s streams) PortForward(ctx context.Context, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	address := net.JoinHostPort(s.server.config.PodIP, strconv.Itoa(int(port)))
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("connecting to the pod: %w", err)
	}
	defer conn.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(conn, stream)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	}()
	_, _ = io.Copy(stream, conn)
	_ = stream.Close()
	<-done
	return nil
}
