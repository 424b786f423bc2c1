package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/page/model"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/page/pagetest"
)

// viewer receives a stream.
type viewer struct {
	cancel context.CancelFunc
	ended  chan struct{}

	mu       sync.Mutex
	header   http.Header
	status   int
	deadline time.Time
	stuck    bool
	delay    time.Duration // of each event
	got      []string      // events
}

func (v *viewer) Header() http.Header { return v.header }

func (v *viewer) WriteHeader(status int) { v.status = status }

// Write waits while the viewer is stuck, until the deadline.
func (v *viewer) Write(data []byte) (int, error) {
	time.Sleep(v.delay)
	for {
		v.mu.Lock()
		if !v.stuck {
			v.got = append(v.got, string(data))
			v.mu.Unlock()
			return len(data), nil
		}
		v.mu.Unlock()
		if !time.Now().Before(v.deadline) {
			return 0, os.ErrDeadlineExceeded
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (v *viewer) FlushError() error { return nil }

func (v *viewer) SetReadDeadline(time.Time) error { return nil }

func (v *viewer) SetWriteDeadline(at time.Time) error {
	v.deadline = at
	return nil
}

func (v *viewer) stick(stuck bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stuck = stuck
}

// messages returns the states that were received since the last call.
func (v *viewer) messages(t *testing.T) (all []model.Sections) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, event := range v.got {
		data, isState := strings.CutPrefix(event, "event: state\ndata: ")
		if !isState {
			continue
		}
		var m struct{ Sections model.Sections }
		if err := json.Unmarshal([]byte(strings.TrimSuffix(data, "\n\n")), &m); err != nil {
			t.Fatalf("%v in %q", err, event)
		}
		all = append(all, m.Sections)
	}
	v.got = nil
	return all
}

// look opens a stream.
func look(t *testing.T, p *Page, token string) *viewer {
	t.Helper()
	return lookSlowly(t, p, token, 0)
}

// lookSlowly opens a stream of a viewer that takes each event with a delay.
func lookSlowly(t *testing.T, p *Page, token string, delay time.Duration) *viewer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	v := &viewer{cancel: cancel, ended: make(chan struct{}), header: http.Header{}, status: http.StatusOK, delay: delay}
	r := local(httptest.NewRequestWithContext(ctx, http.MethodGet, Path+"events", nil))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	go func() {
		defer close(v.ended)
		p.ServeHTTP(v, r)
	}()
	return v
}

// bubble runs a test of a page that shows a world of 50 machines.
func bubble(t *testing.T, access Access, test func(t *testing.T, p *Page, w *pagetest.World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := pagetest.NewWorld(50, time.Now())
		p, err := New(Config{Source: w, Clock: clock.RealClock{}, Access: access})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.Run(ctx)
		}()
		test(t, p, w)
		cancel()
		<-ended
		synctest.Wait()
	})
}

// change has the version of the serving replica changed, as an example of a change.
func change(w *pagetest.World, version string) {
	w.Change(func(in *model.Input) { in.Version = version })
}

func versionOf(s model.Sections) (is string) {
	var about model.About
	_ = json.Unmarshal(s["about"], &about)
	return about.Version
}

func TestViewersGetTheStateAndThenItsChanges(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *Page, w *pagetest.World) {
		one := look(t, p, "")
		time.Sleep(3 * time.Second)
		if m := one.messages(t); len(m) != 1 || len(m[0]) < 10 {
			t.Errorf("at first: %d messages", len(m))
		}
		change(w, "v2")
		two := look(t, p, "")
		time.Sleep(2 * time.Second)
		if m := one.messages(t); len(m) != 1 || len(m[0]) != 1 || versionOf(m[0]) != "v2" {
			t.Errorf("after a change: %d messages", len(m))
		}
		if m := two.messages(t); len(m) == 0 || len(m[0]) < 10 {
			t.Error("a second viewer does not get the whole state")
		}
		time.Sleep(time.Minute)
		if m := one.messages(t); len(m) > 6 {
			t.Errorf("%d messages in a minute without a change", len(m)) // ages of silence, each ten seconds
		}
		one.cancel()
		two.cancel()
		<-one.ended
		<-two.ended
	})
}

// TestNothingIsReadWithoutViewers: from a minute after the last viewer on.
func TestNothingIsReadWithoutViewers(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *Page, w *pagetest.World) {
		time.Sleep(time.Hour)
		if w.Watched() != 0 {
			t.Error("it is watched before the first viewer")
		}
		for range 2 {
			v := look(t, p, "")
			time.Sleep(3 * time.Second)
			v.cancel()
			<-v.ended
			if m := v.messages(t); len(m) == 0 || w.Watched() != 1 {
				t.Errorf("%d messages, watched %d times", len(m), w.Watched())
			}
			time.Sleep(watchAfter - 5*time.Second)
			if w.Watched() != 1 {
				t.Error("it is not watched any more within a minute")
			}
			time.Sleep(10 * time.Second)
			if w.Watched() != 0 {
				t.Error("it is watched after a minute")
			}
		}
	})
}

// TestASlowViewerDelaysNoOther: it gets the latest state when it can take it, and none in between.
func TestASlowViewerDelaysNoOther(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *Page, w *pagetest.World) {
		slow, quick := look(t, p, ""), look(t, p, "")
		time.Sleep(2 * time.Second)
		slow.messages(t)
		quick.messages(t)
		slow.stick(true)
		for i := range 10 {
			change(w, fmt.Sprint("v", i))
			time.Sleep(2 * time.Second)
		}
		if m := quick.messages(t); len(m) < 10 {
			t.Errorf("the other viewer got %d messages, want 10 at least", len(m))
		}
		slow.stick(false)
		time.Sleep(time.Second)
		// The first one was being sent all the time.
		if m := slow.messages(t); len(m) != 2 || versionOf(m[0]) != "v0" || versionOf(m[1]) != "v9" {
			t.Errorf("the slow viewer got %d messages", len(m))
		}
		slow.stick(true)
		change(w, "last")
		time.Sleep(sendTimeout + 2*time.Second)
		select {
		case <-slow.ended:
		default:
			t.Error("the stream of a viewer that takes nothing is open")
		}
		slow.stick(false)
		quick.cancel()
		<-quick.ended
	})
}

func TestViewersAreBounded(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *Page, _ *pagetest.World) {
		var all []*viewer
		for range mostViewers + 1 {
			all = append(all, look(t, p, ""))
			synctest.Wait()
		}
		last := all[mostViewers]
		<-last.ended
		if last.status != http.StatusServiceUnavailable {
			t.Errorf("status %d, want 503", last.status)
		}
		for _, v := range all {
			v.cancel()
			<-v.ended
		}
		again := look(t, p, "")
		synctest.Wait()
		if again.status != http.StatusOK {
			t.Errorf("status %d after others have gone", again.status)
		}
		again.cancel()
		<-again.ended
	})
}

// TestStreamsOfOneUserAreBounded, with all tokens together, so that a user keeps no other from the
// page.
func TestStreamsOfOneUserAreBounded(t *testing.T) {
	bubble(t, &oneToken{token: "secret"}, func(t *testing.T, p *Page, _ *pagetest.World) {
		var all []*viewer
		for i := range mostOfUser + 1 {
			all = append(all, look(t, p, fmt.Sprint("secret/", i)))
			synctest.Wait()
		}
		last := all[mostOfUser]
		<-last.ended
		if last.status != http.StatusServiceUnavailable {
			t.Errorf("status %d for one more stream, want 503", last.status)
		}
		if leave, ok := p.hub.enter("other", mostOfUser); !ok {
			t.Error("another user is refused")
		} else {
			leave()
		}
		all[0].cancel()
		<-all[0].ended
		all[mostOfUser] = look(t, p, "secret/again")
		synctest.Wait()
		if got := all[mostOfUser].status; got != http.StatusOK || len(p.hub.of) != 1 {
			t.Errorf("status %d after one was closed, want 200; streams %v", got, p.hub.of)
		}
		for _, v := range all[1:] {
			v.cancel()
			<-v.ended
		}
	})
}

// TestTheEndOfAnAccessEndsTheStream: a token is revoked while a page is open.
func TestTheEndOfAnAccessEndsTheStream(t *testing.T) {
	access := &oneToken{token: "secret"}
	bubble(t, access, func(t *testing.T, p *Page, _ *pagetest.World) {
		v := look(t, p, "secret")
		time.Sleep(time.Minute)
		select {
		case <-v.ended:
			t.Fatal("the stream has ended")
		default:
		}
		access.revoke()
		time.Sleep(pulse + time.Second)
		<-v.ended
		if last := v.got[len(v.got)-1]; last != "event: end\ndata: 401\n\n" {
			t.Errorf("the last event is %q", last)
		}
	})
}

// TestTheEndEndsTheStreamOfASlowViewer: of its access or of the process, while there is a newer
// state each time that it has taken one.
func TestTheEndEndsTheStreamOfASlowViewer(t *testing.T) {
	const delay = 2100 * time.Millisecond
	for name, tc := range map[string]struct {
		end  func(p *Page, access *oneToken, v *viewer)
		last string
	}{
		"access":  {func(_ *Page, access *oneToken, _ *viewer) { access.revoke() }, "event: end\ndata: 401\n\n"},
		"process": {func(p *Page, _ *oneToken, _ *viewer) { go func() { p.closed <- struct{}{} }() }, "event: state"},
		"request": {func(_ *Page, _ *oneToken, v *viewer) { v.cancel() }, "event: state"},
	} {
		t.Run(name, func(t *testing.T) {
			access := &oneToken{token: "secret"}
			bubble(t, access, func(t *testing.T, p *Page, w *pagetest.World) {
				v := lookSlowly(t, p, "secret", delay)
				for i := range 120 {
					change(w, fmt.Sprint("v", i))
					time.Sleep(time.Second)
					if i == 60 {
						tc.end(p, access, v)
					}
					if i == 60+int((pulse+2*delay)/time.Second) {
						break
					}
				}
				synctest.Wait()
				select {
				case <-v.ended:
				default:
					t.Error("the stream is open")
					v.cancel()
					<-v.ended
				}
				if last := v.got[len(v.got)-1]; len(v.got) < 20 || !strings.HasPrefix(last, tc.last) {
					t.Errorf("%d events, the last one is %.40q", len(v.got), last)
				}
			})
		})
	}
}

// TestTheEndOfTheProcessEndsStreams, so that it does not wait for viewers.
func TestTheEndOfTheProcessEndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.Run(ctx)
		}()
		v := look(t, p, "")
		time.Sleep(time.Second)
		cancel()
		<-ended
		<-v.ended
	})
}
