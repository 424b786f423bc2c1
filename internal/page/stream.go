package page

import (
	"net/http"
	"strconv"
	"time"
)

const (
	// sendTimeout is for how long a viewer may not take what is sent, before its stream is closed.
	sendTimeout = 30 * time.Second
	// pulse is after which time without a state a comment is sent, so that both ends know that the
	// other one is there, and the access of the viewer is reviewed.
	pulse = 15 * time.Second
	// retryAfter is after how many milliseconds a browser connects again.
	retryAfter = 2000
)

// stream sends states to a viewer until its request or its access ends.
func (p *Page) stream(w http.ResponseWriter, r *http.Request) {
	leave, ok := p.hub.enter(p.viewer(r))
	if !ok {
		http.Error(w, "too many pages of this fleet are open at this replica; close some, or use another replica", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	out := &sender{w: w, control: http.NewResponseController(w), now: p.cfg.Clock.Now}
	// The server's bound on the time of a request would end the stream.
	if out.control.SetReadDeadline(time.Time{}) != nil || !out.send([]byte("retry: "+strconv.Itoa(retryAfter)+"\n\n")) {
		return
	}
	ticker := p.cfg.Clock.NewTicker(pulse)
	defer ticker.Stop()
	reviewed := p.cfg.Clock.Now()
	isAdmitted := func() bool {
		reviewed = p.cfg.Clock.Now()
		status := p.status(r)
		if status != http.StatusOK {
			out.event("end", []byte(strconv.Itoa(status)))
		}
		return status == http.StatusOK
	}
	var seen *frame
	for {
		// For a viewer that takes states more slowly than they change there is always one to send.
		if r.Context().Err() != nil || p.isClosed() || p.cfg.Clock.Since(reviewed) >= pulse && !isAdmitted() {
			return
		}
		latest, changed := p.hub.after(seen)
		if latest != nil {
			if !out.event("state", latest.since(seen)) {
				return
			}
			seen = latest
			continue
		}
		select {
		case <-r.Context().Done():
			return
		case <-p.closed:
			return
		case <-changed:
		case <-ticker.C():
			if !isAdmitted() || !out.send([]byte(": \n\n")) {
				return
			}
		}
	}
}

// isClosed reports whether the process ends.
func (p *Page) isClosed() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}

// sender writes to a viewer, with a deadline for each event.
type sender struct {
	w       http.ResponseWriter
	control *http.ResponseController
	now     func() time.Time
}

// event sends an event. Data is JSON or a number, which have no line breaks.
func (s *sender) event(name string, data []byte) bool {
	all := make([]byte, 0, len(data)+len(name)+len("event: \ndata: \n\n"))
	all = append(append(append(all, "event: "...), name...), "\ndata: "...)
	return s.send(append(append(all, data...), "\n\n"...))
}

// send reports whether the viewer is still there.
func (s *sender) send(data []byte) bool {
	if s.control.SetWriteDeadline(s.now().Add(sendTimeout)) != nil {
		return false
	}
	if _, err := s.w.Write(data); err != nil {
		return false
	}
	return s.control.Flush() == nil
}
