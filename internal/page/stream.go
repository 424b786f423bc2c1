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

// stream sends states to a viewer, of a user, until its request or its access ends.
func (p *Page) stream(w http.ResponseWriter, r *http.Request, user string) {
	leave, ok := p.hub.enter(user, p.streamsOf())
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
	access := &admission{page: p, request: r, out: out, reviewed: p.cfg.Clock.Now()}
	var seen *frame
	for access.lasts() {
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
			if !access.review() || !out.send([]byte(": \n\n")) {
				return
			}
		}
	}
}

// admission is the access of a viewer to its stream.
type admission struct {
	page     *Page
	request  *http.Request
	out      *sender
	reviewed time.Time
}

// lasts reports whether the next state may be sent. For a viewer that takes states more slowly than
// they change there is always a next one.
func (a *admission) lasts() bool {
	select {
	case <-a.request.Context().Done():
		return false
	case <-a.page.closed:
		return false
	default:
		return a.page.cfg.Clock.Since(a.reviewed) < pulse || a.review()
	}
}

// review reports whether the viewer may still see the page, and says it to one that may not.
func (a *admission) review() bool {
	a.reviewed = a.page.cfg.Clock.Now()
	_, status := a.page.status(a.request)
	if status != http.StatusOK {
		a.out.event("end", []byte(strconv.Itoa(status)))
	}
	return status == http.StatusOK
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
