package apianswers_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
)

// apart is a clock of a process that differs from that of the test.
type apart struct {
	clock.RealClock

	by time.Duration
}

func (a *apart) Now() time.Time { return a.RealClock.Now().Add(a.by) }

// server answers with the time of a clock, after some time on each way.
type server struct {
	ahead, way time.Duration
	noDate     bool
}

// RoundTrip is http.RoundTripper's.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(s.way)
	header := http.Header{}
	if !s.noDate {
		header.Set("Date", time.Now().Add(s.ahead).UTC().Format(http.TimeFormat))
	}
	time.Sleep(s.way)
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

func request(t *testing.T, through http.RoundTripper) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := through.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
}

// near fails the test unless two times are equal to within some time.
func near(t *testing.T, what string, got, want time.Time, within time.Duration) {
	t.Helper()
	if d := got.Sub(want); d.Abs() > within {
		t.Errorf("%s: got a clock that is %s apart, want at most %s", what, d, within)
	}
}

// The first answer sets the clock, whichever of the two is wrong, and a slow one no less exactly
// than its own duration allows.
func TestFirstAnswerSetsTheClock(t *testing.T) {
	for _, by := range []time.Duration{-10 * time.Minute, -9 * time.Second, 0, 9 * time.Second, 10 * time.Minute} {
		for _, way := range []time.Duration{0, time.Second} {
			synctest.Test(t, func(t *testing.T) {
				own := &apart{by: by}
				c := apianswers.NewClock(own, "control")
				request(t, c.Wrap(&server{way: way}))
				near(t, by.String(), c.Now(), time.Now(), time.Second+2*way)
				near(t, by.String()+" by Ahead", own.Now().Add(c.Ahead()), time.Now(), time.Second+2*way)
				begun := c.Now()
				time.Sleep(time.Hour)
				if got := c.Since(begun); got != time.Hour {
					t.Errorf("an hour lasts %s", got)
				}
			})
		}
	}
}

// Clocks that are synchronized are equal to the nanosecond, so that nothing moves.
func TestSynchronizedClocksAreNotCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := &apart{by: 3 * time.Second}
		c := apianswers.NewClock(own, "control")
		for range 10 {
			request(t, c.Wrap(&server{way: 300 * time.Millisecond}))
			near(t, "synchronized", c.Now(), own.Now(), 0)
		}
		if got := c.Ahead(); got != 0 {
			t.Errorf("got %s ahead, want 0", got)
		}
	})
}

// Without a date, and before the first answer, the time is that of the process.
func TestWithoutADateTheProcessClockCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := &apart{by: 10 * time.Minute}
		c := apianswers.NewClock(own, "control")
		request(t, c.Wrap(&server{noDate: true}))
		near(t, "without a date", c.Now(), own.Now(), 0)
		if got := c.At(time.Time{}); !got.IsZero() {
			t.Errorf("the zero Time becomes %s", got)
		}
	})
}

// A server among others whose clock is wrong does not move the time while the others answer, and a
// clock that was set moves it soon.
func TestLaterAnswersCorrectTheClockWhenNoneAgrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := &apart{}
		c := apianswers.NewClock(own, "control")
		right, wrong := c.Wrap(&server{}), c.Wrap(&server{ahead: 10 * time.Minute})
		for range 100 {
			request(t, right)
			time.Sleep(10 * time.Second)
			request(t, wrong)
			near(t, "two servers", c.Now(), time.Now(), 0)
		}
		for range 5 {
			time.Sleep(10 * time.Second)
			request(t, wrong)
		}
		near(t, "the clock of the server was set", c.Now(), time.Now().Add(10*time.Minute), time.Second)
	})
}

// The last jump forward is reported, and no correction that lets times on objects look newer than
// they are, or hardly older.
func TestLastJump(t *testing.T) {
	for name, tc := range map[string]struct{ first, then, want time.Duration }{
		"none":              {},
		"the first answer":  {first: time.Hour, then: time.Hour},
		"forward":           {then: time.Hour, want: time.Hour},
		"forward, a little": {then: 30 * time.Second},
		"back":              {then: -time.Hour},
		"from behind":       {first: -time.Hour, want: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, at := apianswers.NewClock(clock.RealClock{}, "control"), &server{ahead: tc.first}
				request(t, c.Wrap(at))
				at.ahead = tc.then
				set := time.Now()
				for range 7 {
					request(t, c.Wrap(at))
					time.Sleep(10 * time.Second)
				}
				jumped, by := c.LastJump()
				if (by-tc.want).Abs() > 2*time.Second || by == 0 != jumped.IsZero() || tc.want != 0 && jumped.Sub(set) > time.Minute {
					t.Errorf("got %s after %s, want %s", by, jumped.Sub(set), tc.want)
				}
				near(t, "after it", c.Now(), time.Now().Add(tc.then), time.Second)
			})
		})
	}
}

// The wall clock of the process may be set: the time does not follow.
func TestWallClockThatIsSetMovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := apianswers.NewClock(clock.RealClock{}, "control")
		request(t, c.Wrap(&server{}))
		then := time.Now()
		time.Sleep(time.Minute)
		near(t, "a time that was read before", c.At(then), time.Now().Add(-time.Minute), 0)
	})
}

// Two clusters of one process differ by what their servers differ.
func TestAheadOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := &apart{by: -10 * time.Minute}
		control, target := apianswers.NewClock(own, "control"), apianswers.NewClock(own, "target")
		request(t, control.Wrap(&server{}))
		if got := target.AheadOf(control); got != 0 {
			t.Errorf("a server that has not answered is %s ahead", got)
		}
		request(t, target.Wrap(&server{ahead: 10 * time.Minute}))
		if got := target.AheadOf(control); (got - 10*time.Minute).Abs() > 2*time.Second {
			t.Errorf("got %s ahead, want 10m0s", got)
		}
		request(t, apianswers.NewClock(own, "target").Wrap(&server{}))
		same := apianswers.NewClock(own, "target")
		request(t, same.Wrap(&server{way: time.Second}))
		if got := same.AheadOf(control); got != 0 {
			t.Errorf("two servers with one clock are %s apart", got)
		}
	})
}

// An API server among others whose clock differs a little does not hide by how much the clusters
// differ.
func TestAheadOfWhileAnswersDisagree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := &apart{}
		control, target := apianswers.NewClock(own, "control"), apianswers.NewClock(own, "target")
		request(t, control.Wrap(&server{}))
		for range 10 {
			request(t, target.Wrap(&server{ahead: -10 * time.Minute}))
			request(t, target.Wrap(&server{ahead: -10*time.Minute + 8*time.Second}))
			if got := target.AheadOf(control); (got + 10*time.Minute).Abs() > 2*time.Second {
				t.Fatalf("got %s ahead, want -10m0s", got)
			}
		}
	})
}

// suspended is a clock of a process whose monotonic clock stood still for some time.
type suspended struct {
	clock.RealClock

	slept time.Duration
}

func (s *suspended) Now() time.Time { return s.RealClock.Now().Add(-s.slept) }

// Two clusters with one time, after a suspension: neither is ahead of the other at any moment,
// although the answers of one come earlier. A drain that begins would take the times of its objects
// for two hours older than they are. Where the wall clock shows the suspension, the first answer of
// each ends it.
func TestAfterASuspensionNoClusterIsAhead(t *testing.T) {
	for _, isShown := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			own := &suspended{}
			control, target := apianswers.NewClock(own, "control"), apianswers.NewClock(own, "target")
			toControl, toTarget := control.Wrap(&server{}), target.Wrap(&server{})
			request(t, toControl)
			request(t, toTarget)
			time.Sleep(2 * time.Hour)
			own.slept = 2 * time.Hour
			if isShown {
				control.SetSlept(own.slept)
				target.SetSlept(own.slept)
			}
			for i := range 100 {
				if i%10 == 0 { // its checks
					request(t, toTarget)
					target.SetSlept(0)
				}
				if i%10 == 5 {
					request(t, toControl)
					control.SetSlept(0)
				}
				if got := target.AheadOf(control); got != 0 {
					t.Fatalf("%d s after it the target is %s ahead", i, got)
				}
				if isShown && i == 5 {
					near(t, "after the first answer", control.Now(), time.Now(), time.Second)
				}
				time.Sleep(time.Second)
			}
			near(t, "after the suspension", control.Now(), time.Now(), time.Second)
			if _, by := control.LastJump(); (by - own.slept).Abs() > 2*time.Second {
				t.Errorf("got a jump of %s: an API server on the same machine was suspended, too, want %s", by, own.slept)
			}
		})
	}
}
