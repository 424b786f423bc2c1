// Package turns has a lock for work that is done by one goroutine at a time and waits for requests meanwhile.
//
// It is a channel, and not a sync.Mutex: in a bubble of testing/synctest no time passes while a goroutine waits for a sync.Mutex, so
// that a request that is sent under one would never be answered there.
//
// Not guaranteed: that waiting goroutines get the lock in the order of their calls.
package turns
