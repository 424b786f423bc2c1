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

// Turns are Mutexes by key, which exist while they are used. The zero value has none.
type Turns[K comparable] struct {
	mu  sync.Mutex
	all map[K]*turn
}

// turn is the Mutex of a key.
type turn struct {
	Mutex

	users int // that have the lock, or wait
}

// Lock waits for the lock of a key until ctx ends. The caller calls unlock once. Errors: the end of
// ctx.
func (t *Turns[K]) Lock(ctx context.Context, key K) (unlock func(), err error) {
	t.mu.Lock()
	if t.all == nil {
		t.all = map[K]*turn{}
	}
	of := t.all[key]
	if of == nil {
		of = &turn{}
		t.all[key] = of
	}
	of.users++
	t.mu.Unlock()
	if err := of.LockContext(ctx); err != nil {
		t.leave(key, of)
		return nil, err
	}
	return func() {
		of.Unlock()
		t.leave(key, of)
	}, nil
}

func (t *Turns[K]) leave(key K, of *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if of.users--; of.users == 0 {
		delete(t.all, key)
	}
}
