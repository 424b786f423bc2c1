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
	binary   bool // shows objects in protobuf
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
		binary: getsProtobuf(r, t, selected.partial),
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
		s.watches++
		return w, nil
	}
	w.next = s.revision
	for _, o := range s.selected(t.resource, selected) {
		if err := w.put(watch.Added, o); err != nil {
			return nil, err
		}
	}
	if streams {
		if err := w.putBookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"}); err != nil {
			return nil, err
		}
	}
	s.watches++
	return w, nil
}

// put adds an event. Errors: the client accepts protobuf, and the object cannot be encoded so.
func (e *Events) put(kind watch.EventType, o *Object) error {
	if !e.binary {
		e.putJSON(kind, o.bytes(e.selected.partial))
		return nil
	}
	object, err := o.inProtobuf(e.selected.partial)
	if err != nil {
		return err
	}
	return writeEvent(&e.rest, kind, object)
}

func (e *Events) putJSON(kind watch.EventType, object []byte) {
	fmt.Fprintf(&e.rest, `{"type":%q,"object":%s}`+"\n", kind, object)
}

func (e *Events) putBookmark(annotations map[string]string) error {
	note := ""
	for key, value := range annotations {
		note = fmt.Sprintf(`,"annotations":{%q:%q}`, key, value)
	}
	apiVersion, kind := e.target.group.String(), e.target.kind.name
	if e.selected.partial {
		apiVersion, kind = metav1.SchemeGroupVersion.String(), partialKind
	}
	object := fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"%s}}`, kind, apiVersion, e.next, note)
	if !e.binary {
		e.putJSON(watch.Bookmark, object)
		return nil
	}
	object, err := protobufOf(object)
	if err != nil {
		return err
	}
	return writeEvent(&e.rest, watch.Bookmark, object)
}

// Close ends the watch.
func (e *Events) Close() error {
	e.closing.Do(func() {
		close(e.closed)
		e.server.mu.Lock()
		defer e.server.mu.Unlock()
		e.server.watches--
	})
	return nil
}

// Watches returns how many watches have begun whose body is not closed.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches
}

// Read returns bytes of the next event. Errors: io.EOF at the end of the watch, and that of the
// request's context.
func (e *Events) Read(p []byte) (int, error) {
	for e.rest.Len() == 0 {
		if err := e.wait(); err != nil {
			return 0, err
		}
	}
	if e.Delay != nil {
		if err := e.delay(); err != nil {
			return 0, err
		}
	}
	return e.rest.Read(p)
}

// delay waits for as long as Delay returns. Errors: the watch has ended meanwhile, by its own
// timeout too.
func (e *Events) delay() error {
	for {
		if isClosed(e.era) {
			return io.EOF
		}
		delayed, atMost := e.Delay()
		if delayed == nil {
			return nil
		}
		if !e.until.IsZero() {
			atMost = min(atMost, e.until.Sub(e.server.now()))
		}
		if atMost <= 0 {
			return io.EOF
		}
		if err := e.pause(delayed, atMost); err != nil {
			return err
		}
		if !isClosed(delayed) {
			return io.ErrUnexpectedEOF
		}
	}
}

// wait waits for one event, or for another change of state.
func (e *Events) wait() error {
	c, changed, ended := e.after()
	switch {
	case ended:
		return io.EOF
	case c != nil:
		return e.send(*c)
	}
	idle := bookmarkEvery
	if !e.until.IsZero() {
		idle = min(idle, e.until.Sub(e.server.now()))
	}
	if idle <= 0 {
		return io.EOF
	}
	if err := e.pause(changed, idle); err != nil {
		return err
	}
	if e.bookmark && idle == bookmarkEvery && !isClosed(changed) {
		return e.putBookmark(nil)
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
func (e *Events) after() (next *change, changed <-chan struct{}, ended bool) {
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	if isClosed(e.era) {
		return nil, nil, true
	}
	st := e.server.storeOf(e.target.resource)
	if e.next < st.trimmed {
		return nil, nil, true
	}
	low, high := 0, len(st.history)
	for low < high { // the first change after what was read
		if middle := (low + high) / 2; st.history[middle].revision <= e.next {
			low = middle + 1
		} else {
			high = middle
		}
	}
	for ; low < len(st.history); low++ {
		c := &st.history[low]
		if e.selected.selects(c.before) || e.selected.selects(c.after) {
			return c, nil, false
		}
		e.next = c.revision
	}
	e.next = max(e.next, e.server.revision)
	return nil, st.changed, false
}

// send sends an event of a change, when it is time.
func (e *Events) send(c change) error {
	if e.Lag != nil {
		if late := e.Lag(c.at).Sub(e.server.now()); late > 0 {
			if err := e.pause(nil, late); err != nil {
				return err
			}
		}
	}
	e.next = c.revision
	was, is := e.selected.selects(c.before), e.selected.selects(c.after)
	switch {
	case was && is:
		return e.put(watch.Modified, c.after)
	case is:
		return e.put(watch.Added, c.after)
	}
	return e.put(watch.Deleted, c.gone()) // it was deleted, or it left the selection: what is shown is the object of before
}

// pause waits for a channel to be closed, or for so long; 0 means without limit. Errors: the watch
// ends meanwhile.
func (e *Events) pause(until <-chan struct{}, d time.Duration) error {
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
	case <-e.era:
		return io.EOF
	case <-e.closed:
		return io.ErrClosedPipe
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
}
