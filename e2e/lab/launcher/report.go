package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// ReportFD is the file descriptor of the launcher's end of the connection to the `lab up` that has
// started it.
//
// The launcher writes messages to it until it is ready or has failed. When it reads the end of it
// before that, `lab up` was cancelled, and so is the boot.
const ReportFD = 3

// message is one line of a report; one field is set.
type message struct {
	Say   string `json:"say,omitempty"`
	Ready bool   `json:"ready,omitempty"`
	Error string `json:"error,omitempty"`
}

// ReportTo returns the launcher's end of the connection. The context ends when the other side
// disconnects before ready was called. end must be called when the launcher ends, with its error.
func ReportTo(ctx context.Context, fd uintptr) (_ context.Context, say func(string), ready func(), end func(error), err error) {
	syscall.CloseOnExec(int(fd)) // Processes that the launcher starts must not inherit it.
	file := os.NewFile(fd, "report")
	conn, err := net.FileConn(file)
	_ = file.Close()
	if err != nil {
		return nil, nil, nil, nil, fmt.Errorf("using file descriptor %d (lab serve is started by lab up): %w", fd, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	isReady, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = conn.Read(make([]byte, 1)) // Nothing is ever sent.
		select {
		case <-isReady:
		default:
			cancel()
		}
	}()
	send := func(m message) { _ = json.NewEncoder(conn).Encode(m) } // An error is found by the Read above.
	finish := func(last message) {
		send(last)
		_ = conn.Close()
		<-gone
	}
	say = func(text string) { send(message{Say: text}) }
	ready = func() {
		close(isReady)
		finish(message{Ready: true})
	}
	end = func(err error) {
		select {
		case <-isReady:
		default:
			finish(message{Error: fmt.Sprint(err)})
		}
		cancel()
	}
	return ctx, say, ready, end, nil
}

// connection returns both ends.
func connection() (ours net.Conn, theirs *os.File, err error) {
	// No process may be started between the two steps.
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to the launcher: %w", err)
	}
	file := os.NewFile(uintptr(fds[0]), "launcher")
	defer file.Close()
	theirs = os.NewFile(uintptr(fds[1]), "report")
	ours, err = net.FileConn(file)
	if err != nil {
		_ = theirs.Close()
		return nil, nil, fmt.Errorf("connecting to the launcher: %w", err)
	}
	return ours, theirs, nil
}

// errVanished: the launcher ended without a message.
var errVanished = errors.New("the launcher ended without a message; see its log")

// follow passes on the launcher's messages, and returns when it is ready (nil) or has failed.
func follow(conn net.Conn, say func(string)) error {
	decoder := json.NewDecoder(conn)
	for {
		var m message
		switch err := decoder.Decode(&m); {
		case errors.Is(err, io.EOF):
			return errVanished
		case err != nil:
			return fmt.Errorf("reading the launcher's messages: %w", err)
		case m.Ready:
			return nil
		case m.Error != "":
			return errors.New(m.Error)
		}
		say(m.Say)
	}
}
