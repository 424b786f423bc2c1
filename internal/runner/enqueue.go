package runner

import "time"

// Enqueue has the key reconciled soon. A key that waits already is not added again.
func (r *Runner[K]) Enqueue(key K) { r.queue.Add(key) }

// EnqueueSoon has the key reconciled at once if its last pass has begun longer ago than
// Config.Gather, and else when that time is over: it is for what happens to the objects below one,
// of which there may be many. One pass looks at all of them, and serves for all that has happened
// in that time.
func (r *Runner[K]) EnqueueSoon(key K) {
	if wait := r.begun.Wait(key, r.cfg.Clock.Now()); wait > 0 && r.cfg.Gather > 0 {
		r.EnqueueAfter(key, wait)
		return
	}
	r.Enqueue(key)
}

// EnqueueUnless enqueues the key unless known reports that its passes have taken into account what
// has happened. While a pass runs, that is asked when it has ended.
func (r *Runner[K]) EnqueueUnless(key K, known func() bool) {
	r.mu.Lock()
	later, runs := r.inWork[key]
	if runs {
		r.inWork[key] = append(later, known)
	}
	r.mu.Unlock()
	if !runs && !known() {
		r.Enqueue(key)
	}
}

// begin records that a pass of the key runs.
func (r *Runner[K]) begin(key K) {
	if r.cfg.Gather > 0 {
		r.begun.Forget(key) // only the last pass counts
		r.begun.Count(key, r.cfg.Clock.Now())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inWork[key] = nil
}

// end enqueues the key again if something has happened during its pass that the pass does not know.
func (r *Runner[K]) end(key K) {
	r.mu.Lock()
	happened := r.inWork[key]
	delete(r.inWork, key)
	r.mu.Unlock()
	for _, known := range happened {
		if !known() {
			r.Enqueue(key)
		}
	}
}

// EnqueueAfter enqueues the key after d. If it is enqueued for an earlier time, too, the earlier
// time applies.
func (r *Runner[K]) EnqueueAfter(key K, d time.Duration) { r.queue.AddAfter(key, d) }
