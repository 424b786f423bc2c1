// Package pacing decides when work within a process is done: from one moment to another (Tasks), in
// turns (Mutex), and not too often (Rates).
//
// Tasks begin and end while a process works, such as watches that are needed for some time.
//
// Guarantees of Tasks: a task that has ended before it was started is never started; Run returns
// only when all tasks have. Not guaranteed: that a task that was ended has returned. Its context is
// cancelled.
//
// A Mutex is a lock for work that is done by one goroutine at a time and waits for requests
// meanwhile.
//
// It has a channel, and not a sync.Mutex: in a bubble of testing/synctest no time passes while a
// goroutine waits for a sync.Mutex, so that a request that is sent under one would never be
// answered there.
//
// Turns have a Mutex for each key, so that what concerns one does not wait for what concerns
// another.
//
// Not guaranteed: that waiting goroutines get the lock in the order of their calls.
//
// Rates limit how often an operation is done for each of many keys; the limits of the fleet's
// operations are here.
//
// Guarantees: an operation that was not done for long may be done at once, a burst of it, and on
// average it is done once in the interval; the remembered keys are bounded by those for which it
// makes a difference. Not guaranteed: that an operation that may not be done now is done later; the
// caller has to ensure that.
package pacing
