package session

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// weather is how bad a run is.
type weather struct {
	kinds                           []func(*trial) // of the faults that it has
	lossOneIn, slowOneIn, deafOneIn int            // of answers, requests, and work; 0 is never
}

func (r *trial) drawWeather() (w weather) {
	for _, kind := range []func(*trial){
		(*trial).outage, (*trial).refuse, (*trial).cutOff, (*trial).stickWatch, (*trial).crash, (*trial).crash, (*trial).leave, (*trial).leave,
		(*trial).twin, (*trial).deleteLease, (*trial).deleteLease,
	} {
		if r.random.IntN(3) == 0 {
			w.kinds = append(w.kinds, kind)
		}
	}
	rates := []int{0, 0, 100, 20}
	w.lossOneIn, w.slowOneIn, w.deafOneIn = rates[r.random.IntN(4)], rates[r.random.IntN(4)], rates[r.random.IntN(4)]
	return w
}

func (r *trial) someFault() {
	if len(r.weather.kinds) > 0 {
		r.weather.kinds[r.random.IntN(len(r.weather.kinds))](r)
	}
}

// someone is a process that lives, or nil.
func (r *trial) someone() *life {
	alive := slices.DeleteFunc(slices.Clone(r.lives), func(l *life) bool { return !l.alive() })
	if len(alive) == 0 {
		return nil
	}
	return alive[r.random.IntN(len(alive))]
}

// later does something, also when the faults have ended.
func (r *trial) later(d time.Duration, do func()) {
	r.onWire.Go(func() {
		time.Sleep(d)
		do()
	})
}

// outage: the API server is away, and watches show nothing.
func (r *trial) outage() {
	r.server.Away(true)
	r.later(r.between(time.Second, 60*time.Second), func() { r.server.Away(false) })
}

// refuse has the API server turn writes away.
func (r *trial) refuse() {
	r.server.Fault(func(request apiserver.Request) error {
		if request.Method != http.MethodGet {
			return errors.New("refused")
		}
		return nil
	})
	r.later(r.between(time.Second, 60*time.Second), func() { r.server.Fault(nil) })
}

// cutOff lets nothing through between a process and the API server, stickWatch lets no event
// through.
func (r *trial) cutOff() {
	if l := r.someone(); l != nil {
		until := time.Now().Add(r.between(time.Second, 60*time.Second))
		l.cut(until)
		l.stick(until)
	}
}

func (r *trial) stickWatch() {
	if l := r.someone(); l != nil {
		l.stick(time.Now().Add(r.between(time.Second, 60*time.Second)))
	}
}

func (r *trial) crash() {
	if l := r.someone(); l != nil {
		r.die(l)
	}
}

// die is SIGKILL: from now on nothing is sent, and nothing counts. What is on the wire arrives.
func (*trial) die(l *life) {
	l.killed = true
	l.end(nil)
	l.kill()
}

func (r *trial) leave() {
	if l := r.someone(); l != nil && !l.leaving {
		l.leaving = true
		close(l.leave)
	}
}

// twin replaces a pod by force: the next one's process begins while the old one runs.
func (r *trial) twin() {
	if l := r.someone(); l != nil {
		r.start(l.replica)
	}
}

func (r *trial) deleteLease() {
	names := slices.Sorted(maps.Keys(r.server.Leases()))
	if len(names) > 0 {
		r.server.Delete(names[r.random.IntN(len(names))])
	}
}

// heal ends all faults: of each replica, one process runs.
func (r *trial) heal() {
	r.server.Away(false)
	r.server.Fault(nil)
	newest := map[string]bool{}
	for _, l := range slices.Backward(r.lives) {
		if l.alive() && newest[l.replica] {
			r.die(l)
		}
		newest[l.replica] = newest[l.replica] || l.alive()
		l.faultless.Store(true)
		l.cut(time.Now())
		l.stick(time.Now())
	}
	r.weather = weather{}
}

// start runs a process of a replica: in the same pod as the last one if that has ended, or in a new
// one.
func (r *trial) start(replica string) {
	r.tally.starts++
	l := newLife(r, replica, fmt.Sprintf("%05d", r.tally.starts))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lives = append(r.lives, l)
}
