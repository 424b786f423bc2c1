package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// bookmarkEvery is the time between two bookmarks of a watch without events.
const bookmarkEvery = time.Minute

// Events is the body of an answer to a watch. Its reader gets one event at a time.
type Events struct {
	server   *Server
	target   target
	selected selection
	ctx      context.Context //nolint:containedctx // of the request, which lives as long as the body of its answer
	era      <-chan struct{}
	until    time.Time // the end of the watch; zero for none
	bookmark bool
	// Lag returns when a change of that time has to be shown; nil shows it at once. Delay returns a
	// channel that is closed when reading may continue, and after what time the connection breaks; it
	// returns nil when reading may continue now. Both are set before the body is read.
	Lag   func(at time.Time) time.Time
	Delay func() (delayed <-chan struct{}, atMost time.Duration)

	next int64 // revisions up to this were read
	rest bytes.Buffer

	closing sync.Once
	closed  chan struct{}
}

var _ io.ReadCloser = (*Events)(nil)

func (s *Server) watch(r *http.Request, t target, selected selection, query url.Values) (*Events, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &Events{
		server: s, target: t, selected: selected, ctx: r.Context(), era: s.era, closed: make(chan struct{}),
		bookmark: query.Get("allowWatchBookmarks") == "true", Delay: s.untilBack,
	}
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil {
		w.until = s.now().Add(time.Duration(seconds) * time.Second)
	}
	version, streams := query.Get("resourceVersion"), query.Get("sendInitialEvents") == "true"
	if version != "" && version != "0" && !streams {
		from, err := strconv.ParseInt(version, 10, 64)
		if err != nil {
			return nil, apierrors.NewBadRequest("resourceVersion: " + err.Error())
		}
		if from < s.oldest {
			return nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, s.oldest))
		}
		w.next = from
		return w, nil
	}
	w.next = s.revision
	for _, o := range s.sorted(t.resource) {
		if selected.selects(o) {
			w.put(watch.Added, o.bytes(selected.partial))
		}
	}
	if streams {
		w.putBookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return w, nil
}

func (w *Events) put(kind watch.EventType, object []byte) {
	fmt.Fprintf(&w.rest, `{"type":%q,"object":%s}`+"\n", kind, object)
}

func (w *Events) putBookmark(annotations map[string]string) {
	note := ""
	for key, value := range annotations {
		note = fmt.Sprintf(`,"annotations":{%q:%q}`, key, value)
	}
	apiVersion, kind := w.target.group.String(), w.target.kind.name
	if w.selected.partial {
		apiVersion, kind = metav1.SchemeGroupVersion.String(), "PartialObjectMetadata"
	}
	w.put(watch.Bookmark, fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"%s}}`, kind, apiVersion, w.next, note))
}

// Close ends the watch.
func (w *Events) Close() error {
	w.closing.Do(func() { close(w.closed) })
	return nil
}

// Read returns bytes of the next event. Errors: io.EOF at the end of the watch, and that of the
// request's context.
func (w *Events) Read(p []byte) (int, error) {
	for w.rest.Len() == 0 {
		if err := w.wait(); err != nil {
			return 0, err
		}
	}
	if w.Delay != nil {
		if err := w.delay(); err != nil {
			return 0, err
		}
	}
	return w.rest.Read(p)
}

// delay waits for as long as Delay returns. Errors: the watch has ended meanwhile, by its own
// timeout too.
func (w *Events) delay() error {
	for {
		if isClosed(w.era) {
			return io.EOF
		}
		delayed, atMost := w.Delay()
		if delayed == nil {
			return nil
		}
		if !w.until.IsZero() {
			atMost = min(atMost, w.until.Sub(w.server.now()))
		}
		if atMost <= 0 {
			return io.EOF
		}
		if err := w.pause(delayed, atMost); err != nil {
			return err
		}
		if !isClosed(delayed) {
			return io.ErrUnexpectedEOF
		}
	}
}

// wait waits for one event, or for another change of state.
func (w *Events) wait() error {
	c, changed, ended := w.after()
	switch {
	case ended:
		return io.EOF
	case c != nil:
		return w.send(*c)
	}
	idle := bookmarkEvery
	if !w.until.IsZero() {
		idle = min(idle, w.until.Sub(w.server.now()))
	}
	if idle <= 0 {
		return io.EOF
	}
	if err := w.pause(changed, idle); err != nil {
		return err
	}
	if w.bookmark && idle == bookmarkEvery && !isClosed(changed) {
		w.putBookmark(nil)
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// after returns the next change, or the channel that is closed at the next one. A watch continues
// where it is, also when the history was compacted meanwhile.
func (w *Events) after() (next *change, changed <-chan struct{}, ended bool) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	if isClosed(w.era) {
		return nil, nil, true
	}
	st := w.server.storeOf(w.target.resource)
	if w.next < st.trimmed {
		return nil, nil, true
	}
	low, high := 0, len(st.history)
	for low < high { // the first change after what was read
		if middle := (low + high) / 2; st.history[middle].revision <= w.next {
			low = middle + 1
		} else {
			high = middle
		}
	}
	for ; low < len(st.history); low++ {
		c := &st.history[low]
		if w.selected.selects(c.before) || w.selected.selects(c.after) {
			return c, nil, false
		}
		w.next = c.revision
	}
	w.next = max(w.next, w.server.revision)
	return nil, st.changed, false
}

// send sends an event of a change, when it is time.
func (w *Events) send(c change) error {
	if w.Lag != nil {
		if late := w.Lag(c.at).Sub(w.server.now()); late > 0 {
			if err := w.pause(nil, late); err != nil {
				return err
			}
		}
	}
	w.next = c.revision
	was, is := w.selected.selects(c.before), w.selected.selects(c.after)
	switch {
	case was && is:
		w.put(watch.Modified, c.after.bytes(w.selected.partial))
	case is:
		w.put(watch.Added, c.after.bytes(w.selected.partial))
	default: // it was deleted, or it left the selection: what is shown is the object of before
		w.put(watch.Deleted, c.gone().bytes(w.selected.partial))
	}
	return nil
}

// pause waits for a channel to be closed, or for so long; 0 means without limit. Errors: the watch
// ends meanwhile.
func (w *Events) pause(until <-chan struct{}, d time.Duration) error {
	var timeout <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d) //nolint:forbidigo // in a bubble, whose time it is
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-until:
		return nil
	case <-timeout:
		return nil
	case <-w.era:
		return io.EOF
	case <-w.closed:
		return io.ErrClosedPipe
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}
