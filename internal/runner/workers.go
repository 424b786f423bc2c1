package runner

import "sync"

// workers are goroutines that each take keys of a queue and work on them: as many as there are keys
// to work on, up to a maximum, and one more that waits for the next key. So a maximum of hundreds
// costs nothing while there is nothing to do.
type workers struct {
	most int
	// next waits for a key, calls taken, and works on the key. It returns false when there will be no
	// more keys.
	next func(taken func()) bool
	// queued returns how many keys could be taken now.
	queued func() int

	mu      sync.Mutex
	running int // goroutines
	waiting int // of them, those that have no key
	group   sync.WaitGroup
}

// start starts the first worker; group ends with the last.
func (w *workers) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add()
}

// add starts a worker. The caller holds mu.
func (w *workers) add() {
	w.running++
	w.waiting++
	w.group.Go(func() {
		for more := true; more; {
			more = w.next(w.taken) && w.stays()
		}
	})
}

// taken is called by a worker that has got a key. Another one waits for the next key from then on.
func (w *workers) taken() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting--
	if w.waiting == 0 && w.running < w.most {
		w.add()
	}
}

// stays reports whether a worker that has finished a key is needed for another one. The end of a
// key can make another one of its tenant available, of which the queue notifies no one: so the
// worker stays while a key is queued, although another one waits.
func (w *workers) stays() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting > 0 && w.queued() == 0 {
		w.running--
		return false
	}
	w.waiting++
	return true
}
