package pacing

import (
	"context"
	"sync"
)

// Mutex is a lock that is held while requests are sent. The zero value is not held.
type Mutex struct {
	once sync.Once
	free chan struct{} // holds one value while the lock is not held
}

func (m *Mutex) channel() chan struct{} {
	m.once.Do(func() {
		m.free = make(chan struct{}, 1)
		m.free <- struct{}{}
	})
	return m.free
}

// Lock waits for the lock.
func (m *Mutex) Lock() { <-m.channel() }

// LockContext waits for the lock until ctx ends. It returns an error if it did not get the lock.
func (m *Mutex) LockContext(ctx context.Context) error {
	select {
	case <-m.channel():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TryLock acquires the lock if it is not held, and reports whether it did.
func (m *Mutex) TryLock() bool {
	select {
	case <-m.channel():
		return true
	default:
		return false
	}
}

// Unlock releases the lock. Only the goroutine that holds it may call it.
func (m *Mutex) Unlock() { m.channel() <- struct{}{} }
