// Package runner runs a reconcile function over keys. It is the only place with a work queue in it: it owns the queue,
// the workers, back-off, panics, metrics and the tracing span of every controller.
//
// Guarantees:
//
//   - One key is never reconciled twice at the same time, and a key that is enqueued while it is being reconciled runs
//     again afterwards.
//   - No key is given up. A failing key backs off exponentially up to Config.MaxBackoff and shows in a metric.
//   - A panic of the reconcile function is an error of that key and of no other.
//   - A Pass ends: its number of actions is bounded.
//   - A conflict is not logged as an error: another client has changed the object first, and the key is tried again.
//   - Before each key the Gate is asked. What it refuses is forgotten, and enqueued again by a Notifier or by the code that
//     opens the gate. So is a key whose permission ends. One whose work is refused with an error that is NotOurs has not
//     failed; the Gate is asked for it again after the same back-off, because the refusal may have been for a moment.
//   - Tenants, which are namespaces, take turns, and groups of keys of a tenant do: a lot of work in one does not keep another
//     waiting. Keys of one tenant hold only so many workers at a time.
//   - Run returns when its context has ended and every key in work is finished.
//
// Not guaranteed: any other order among keys.
package runner
