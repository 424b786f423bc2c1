package session

import (
	"sync"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// letter is one input of the loop: an event, or a function to call in the loop.
type letter struct {
	event protocol.Event
	do    func()
}

// mailbox holds letters in their order. Adding one never waits: the caller may hold a lock that the
// loop needs.
type mailbox struct {
	filled chan struct{} // receives when letters were added

	mu      sync.Mutex
	letters []letter
}

func newMailbox() *mailbox { return &mailbox{filled: make(chan struct{}, 1)} }

func (m *mailbox) put(l letter) {
	m.mu.Lock()
	m.letters = append(m.letters, l)
	m.mu.Unlock()
	select {
	case m.filled <- struct{}{}:
	default:
	}
}

func (m *mailbox) receive() []letter {
	m.mu.Lock()
	defer m.mu.Unlock()
	letters := m.letters
	m.letters = nil
	return letters
}
