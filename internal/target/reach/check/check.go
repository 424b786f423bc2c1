package check

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

// Config is the configuration of a Server. All fields are required.
type Config struct {
	// Name of the server in logs, metrics and debug pages.
	Name     string
	Settings reach.Settings
	Clock    clock.WithTicker
	// Read sends one read that needs the storage of the server. It returns when ctx ends.
	Read func(ctx context.Context) error
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error { return required.Fields(c, "Settings") }

// Server is one API server. Create it with New; it is safe for concurrent use. A nil Server always
// answers.
type Server struct {
	cfg     Config
	suspect chan struct{}

	mu      sync.Mutex
	state   reach.State
	last    error // of the last check
	changed []func()
}

// New returns a server that is not checked until Run. Errors: those of Config.Validate.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, suspect: make(chan struct{}, 1)}, nil
}

// Fact returns what decisions need to know of the server. One that was not reached yet is reached
// at this moment at the earliest, so that it never settles until then.
func (s *Server) Fact() reach.Fact {
	if s == nil {
		return reach.Fact{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fact := s.state.Fact()
	if fact.Reached.IsZero() {
		fact.Reached = s.cfg.Clock.Now()
	}
	return fact
}

// OnChange calls f each time that the server is away or is back. Call it before Run; f must return
// soon.
func (s *Server) OnChange(f func()) { s.changed = append(s.changed, f) }

// Run checks the server until ctx ends.
func (s *Server) Run(ctx context.Context) {
	for {
		begun := s.cfg.Clock.Now()
		if !s.wait(ctx, begun, s.check(ctx)) {
			return
		}
	}
}

// spacing is the minimum time between two checks of a server that answers: many requests may fail
// at once.
const spacing = time.Second

// wait waits until the next check is due, or a request has failed; false means that ctx has ended.
func (s *Server) wait(ctx context.Context, begun time.Time, again time.Duration) bool {
	timer, suspicion := s.cfg.Clock.NewTimer(again), s.suspicion()
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C():
			return true
		case <-suspicion:
			suspicion = nil
			timer.Reset(spacing - s.cfg.Clock.Since(begun)) // at once if that is negative
		}
	}
}

// suspicion returns what reports failed requests; nil while the last check was not answered: the
// next one is due soon.
func (s *Server) suspicion() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, failing := s.state.IsFailing(); failing {
		return nil
	}
	return s.suspect
}

// check checks the server once, and returns when to do so again.
func (s *Server) check(ctx context.Context) (again time.Duration) {
	begun := s.cfg.Clock.Now()
	limited, cancel := context.WithCancel(ctx)
	timeout := s.cfg.Clock.NewTimer(s.cfg.Settings.Every())
	defer timeout.Stop()
	var err error
	read := make(chan struct{})
	go func() {
		defer close(read)
		err = s.cfg.Read(limited)
	}()
	select {
	case <-read:
	case <-timeout.C():
		cancel()
		<-read
		err = context.DeadlineExceeded // an answer now comes too late
	}
	cancel()
	if ctx.Err() != nil {
		return s.cfg.Settings.Every()
	}
	return s.note(ctx, begun, err)
}

// note records the result of a check.
func (s *Server) note(ctx context.Context, begun time.Time, err error) (again time.Duration) {
	now := s.cfg.Clock.Now()
	s.mu.Lock()
	was := s.state.Fact()
	if s.last = err; IsAnswer(err) {
		s.last, s.state = nil, s.state.Answered(begun)
	} else {
		s.state = s.state.Failed(begun, now, s.cfg.Settings)
	}
	is, again := s.state.Fact(), s.state.Next(s.cfg.Settings)
	s.mu.Unlock()
	select { // what this check was for is answered
	case <-s.suspect:
	default:
	}
	if is.Away == was.Away {
		return again
	}
	if is.Away {
		klog.FromContext(ctx).Error(err, "API server does not answer; decisions that depend on it wait", "server", s.cfg.Name, "lastAnswer",
			is.From)
	} else {
		klog.FromContext(ctx).Info("API server answers again", "server", s.cfg.Name, "away", is.Back.Sub(is.From).Round(time.Second).String())
	}
	for _, f := range s.changed {
		f()
	}
	return again
}

// Wrap returns a transport that has the server checked at once when a request fails.
func (s *Server) Wrap(next http.RoundTripper) http.RoundTripper {
	return &transport{server: s, next: next}
}

// transport is the http.RoundTripper.
type transport struct {
	server *Server
	next   http.RoundTripper
}

// WrappedRoundTripper returns the transport below, through which client-go finds the connections to
// close.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip sends a request. Errors: those of the transport below.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if err != nil && r.Context().Err() == nil || err == nil && isOutage(answer.StatusCode) {
		select {
		case t.server.suspect <- struct{}{}:
		default:
		}
	}
	return answer, err //nolint:wrapcheck // it is the transport's
}
