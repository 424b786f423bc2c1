// Package runner runs a reconcile function over keys. It is the only place with a work queue in it:
// it owns the queue, the workers, back-off, panics, metrics and the tracing span of every
// controller.
//
// Guarantees:
//
//   - One key is never reconciled twice at the same time, and a key that is enqueued while it is
//     being reconciled runs again afterwards.
//   - Each key is tried until it succeeds. A failing key backs off exponentially up to
//     Config.MaxBackoff and is counted in a metric.
//   - A panic of the reconcile function is an error of that key and of no other.
//   - A Pass ends: its number of actions is bounded.
//   - A conflict is not logged as an error: another client has changed the object first, and the
//     key is tried again.
//   - The Gate decides about each key before it is reconciled. A key that it refuses is dropped,
//     and enqueued again by a Notifier or by the code that opens the gate. So is a key whose
//     permission ends. A key whose work is refused with an error that is NotOurs has not failed; it
//     is tried again after the same back-off, because the refusal may have been temporary.
//   - Tenants, which are namespaces, take turns, and so do groups of keys of a tenant: a lot of
//     work in one does not delay another. Keys of one tenant occupy a limited number of workers at
//     a time.
//   - A key is reconciled within Config.Gather of EnqueueSoon, if a worker is free.
//   - A worker is a goroutine that runs while there are keys: at rest a Runner has one.
//   - Run returns when its context has ended and every key in work is finished.
//
// Shared has the same for controllers of which there is one for each of many tenants, which come
// and go: one queue and one set of workers of each kind for all of them.
//
// Not guaranteed: any other order among keys.
package runner
