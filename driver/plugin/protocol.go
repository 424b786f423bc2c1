package plugin

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// version is the version of the protocol that this package has: that of service
// fleet.machine.sapcloud.io.driver.v1.Driver.
const version = 1

// Bounds on what is sent and received.
const (
	// maxRequest is the largest request: a Machine, a class and a Secret are at most 1.5, 1.5 and 1
	// MiB.
	maxRequest = 8 << 20
	// maxAnswer is the largest answer. A page of driver.MaxResources resources, or of listPage VMs,
	// has at most 1.4 MiB.
	maxAnswer = 4 << 20
	// maxMetadata is how many bytes of metadata, which includes the text of a status, are read with
	// one call.
	maxMetadata = 64 << 10
	// maxCause is how many bytes of a cause are sent and read: more than are shown of it, see
	// driver.MaxMessage.
	maxCause = 8 << 10
	// streamWindow and connectionWindow are how much of one answer, and of all, the transport buffers
	// before they are read.
	streamWindow     = 256 << 10
	connectionWindow = 4 << 20
	// listPage is how many VMs one page of ListMachines has.
	listPage = 1000
	// volumePage is how many volumes one GetVolumeIDs is about.
	volumePage = 500
	// maxSocket is the longest path of a unix socket that Linux and macOS accept.
	maxSocket = 103
)

// Times. None of them is a wait of a worker for a process that is away.
const (
	// callTimeout is the deadline of a call without one, and the longest that a Server allows.
	callTimeout = 2 * time.Minute
	// negotiationTimeout is the deadline of a negotiation, of Scope, and of the opening of a
	// connection.
	negotiationTimeout = 5 * time.Second
	// firstRetry and lastRetry are the shortest and the longest wait between two attempts to connect.
	firstRetry, lastRetry = 50 * time.Millisecond, time.Second
	// pingAfter is how long a connection may be silent until it is probed, and pingTimeout how long an
	// answer to that may take: then the process hangs, and calls in flight end. gRPC probes every 10 s
	// at most.
	pingAfter, pingTimeout = 10 * time.Second, 5 * time.Second
	// stopTimeout is how long a Server waits for calls in flight when it stops.
	stopTimeout = 10 * time.Second
)

// The metadata of calls. The trace context has the key of W3C.
const (
	replicaKey = "mcf-replica"
	sessionKey = "mcf-session"
	slotKey    = "mcf-slot"
	epochKey   = "mcf-epoch"
	leaderKey  = "mcf-leader"
	shareKey   = "mcf-share"
	timeKey    = "mcf-time"
)

// CheckSocket returns an error for a path that cannot be that of a unix socket.
func CheckSocket(path string) error {
	switch {
	case !filepath.IsAbs(path) || strings.ContainsRune(path, 0):
		return fmt.Errorf("expected the absolute path of a unix socket, got %q; give one, such as /run/drivers/azure.sock", path)
	case len(path) > maxSocket:
		return fmt.Errorf("expected the path of a unix socket of at most %d bytes, got %d; use a shorter folder", maxSocket, len(path))
	}
	return nil
}
