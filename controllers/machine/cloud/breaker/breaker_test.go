package breaker

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func refusal() Outcome { return Outcome{Code: driver.Unauthenticated} }

// world is a Breaker and its time.
type world struct {
	*testing.T
	Breaker

	now time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{T: t, now: start}
}

// call requests a call for a machine, and reports whether it was allowed.
func (w *world) call(machine, class string, o Outcome) bool {
	w.Helper()
	by := Caller{machine, class}
	answer := w.Ask(by, w.now)
	if answer.Allowed {
		w.End(by, answer.Probe, o, w.now)
	}
	return answer.Allowed
}

// open has machines of class "c" fail until it is open.
func (w *world) open() {
	w.Helper()
	for i := range Failures {
		if w.IsOpen() {
			w.Fatalf("it is open after %d failures", i)
		}
		w.call(fmt.Sprint("m", i), "c", refusal())
	}
	if !w.IsOpen() {
		w.Fatalf("it is closed after %d failures", Failures)
	}
}

func TestOutcomes(t *testing.T) {
	want := map[driver.Code]evidence{
		driver.OK: works, driver.NotFound: works, driver.AlreadyExists: works, driver.OutOfRange: works, driver.ResourceExhausted: works,
		driver.Uninitialized: works, driver.Unauthenticated: refused, driver.PermissionDenied: refused, driver.Unavailable: refused,
		driver.DeadlineExceeded: refused,
	}
	for _, code := range driver.Codes() {
		if got := (Outcome{Code: code}).shows(); got != want[code] {
			t.Errorf("%s shows %d, want %d", code, got, want[code])
		}
		if got := (Outcome{Code: code, Pending: true}).shows(); got != nothing {
			t.Errorf("%s that is pending shows %d, want nothing", code, got)
		}
		if got := (Outcome{Code: code, Ended: true}).shows(); got != nothing {
			t.Errorf("%s of a call that the caller has ended shows %d, want nothing", code, got)
		}
	}
}

func TestItOpensForDifferentMachinesOnly(t *testing.T) {
	w := newWorld(t)
	for range 10 * Failures {
		for i := range Failures - 1 {
			if !w.call(fmt.Sprint("m", i), "c", refusal()) {
				t.Fatal("a call of few machines is held")
			}
		}
	}
}

func TestAnAnswerEndsTheRow(t *testing.T) {
	for _, between := range []driver.Code{driver.OK, driver.NotFound, driver.ResourceExhausted} {
		w := newWorld(t)
		for i := range 10 * Failures {
			w.call(fmt.Sprint("m", i), "c", refusal())
			if i%(Failures-1) == 0 {
				w.call("other", "c", Outcome{Code: between})
			}
		}
		if w.IsOpen() {
			t.Errorf("it is open, although there were answers with %s", between)
		}
	}
}

func TestPausesGrow(t *testing.T) {
	w := newWorld(t)
	w.open()
	for _, pause := range []time.Duration{
		5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 3 * time.Minute,
		3 * time.Minute,
	} {
		if got := w.Ask(Caller{"m9", "c"}, w.now); got.Allowed || !got.Again.Equal(w.now.Add(pause)) {
			t.Fatalf("%+v, want a pause of %s", got, pause)
		}
		w.now = w.now.Add(pause - 1)
		if w.call("m9", "c", refusal()) {
			t.Fatalf("a call was sent before the end of the pause of %s", pause)
		}
		w.now = w.now.Add(1)
		if !w.call("m9", "c", refusal()) {
			t.Fatalf("no call was sent at the end of the pause of %s", pause)
		}
	}
	w.now = w.now.Add(LongestPause)
	if !w.call("m9", "c", Outcome{}) || w.IsOpen() {
		t.Fatal("the first answer does not close it")
	}
	w.open()
	if got := w.Ask(Caller{"m9", "c"}, w.now); !got.Again.Equal(w.now.Add(FirstPause)) {
		t.Errorf("%+v, want the first pause again", got)
	}
}

func TestThePauseOfTheCloudIsKept(t *testing.T) {
	w := newWorld(t)
	for i := range Failures {
		w.call(fmt.Sprint("m", i), "c", Outcome{Code: driver.Unavailable, RetryAfter: time.Hour})
	}
	if got := w.Ask(Caller{"m9", "c"}, w.now); got.Allowed || !got.Again.Equal(w.now.Add(time.Hour)) {
		t.Errorf("%+v, want the hour that the cloud requests", got)
	}
}

func TestThereIsOneProbeAtATime(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.now = w.now.Add(FirstPause)
	probe := w.Ask(Caller{"m1", "c"}, w.now)
	if !probe.Allowed || probe.Probe == 0 {
		t.Fatalf("%+v, want a probe", probe)
	}
	for _, class := range []string{"c", "new"} {
		if got := w.Ask(Caller{"m2", class}, w.now); got.Allowed || !got.Again.Equal(w.now.Add(2*FirstPause)) {
			t.Errorf("during the probe: %+v, want the time at which the next one is sent if this one fails", got)
		}
	}
	w.End(Caller{"m1", "c"}, probe.Probe, Outcome{Ended: true}, w.now)
	if next := w.Ask(Caller{"m2", "c"}, w.now); !next.Allowed {
		t.Errorf("after a probe that has shown nothing: %+v, want another one", next)
	}
}

// A probe of an earlier opening does not allow a second one in this opening.
func TestAnOldProbe(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.now = w.now.Add(FirstPause)
	old := w.Ask(Caller{"m1", "c"}, w.now)
	w.End(Caller{"late", "c"}, 0, Outcome{}, w.now) // a call from before it opened is answered
	w.open()
	w.now = w.now.Add(FirstPause)
	if probe := w.Ask(Caller{"m2", "c"}, w.now); !probe.Allowed {
		t.Fatalf("%+v, want a probe", probe)
	}
	w.End(Caller{"m1", "c"}, old.Probe, Outcome{Ended: true}, w.now)
	if second := w.Ask(Caller{"m3", "c"}, w.now); second.Allowed {
		t.Errorf("%+v, want no second probe", second)
	}
}

// A class that the cloud refuses does not make a class wait that it accepts.
func TestAnotherClassDoesNotWait(t *testing.T) {
	w := newWorld(t)
	w.open()
	if !w.call("n1", "d", refusal()) {
		t.Fatal("the first call of another class is held")
	}
	if w.call("n2", "d", refusal()) {
		t.Error("the second call of another class that is refused is sent")
	}
	if got := w.Ask(Caller{"m1", "c"}, w.now); !got.Again.Equal(w.now.Add(FirstPause)) {
		t.Errorf("%+v, want the pause as it was: another class must not make it longer", got)
	}
	if !w.call("o1", "e", Outcome{}) || w.IsOpen() {
		t.Error("another class that is accepted does not close it")
	}
}

func TestManyClassesAreBounded(t *testing.T) {
	w := newWorld(t)
	w.open()
	allowed := 0
	for i := range 1000 {
		if w.call("m", fmt.Sprint("class ", i), refusal()) {
			allowed++
		}
	}
	if allowed != mostClasses-1 || len(w.classes) != mostClasses {
		t.Errorf("%d of 1,000 classes sent a call, and %d are remembered; want %d and %d", allowed, len(w.classes), mostClasses-1, mostClasses)
	}
}

func TestIsOver(t *testing.T) {
	w := newWorld(t)
	if !w.IsOver(w.now) {
		t.Error("one without failures is not over")
	}
	w.call("m0", "c", Outcome{Code: driver.Unavailable, RetryAfter: time.Hour})
	if w.IsOver(w.now.Add(forgetAfter)) || !w.IsOver(w.now.Add(forgetAfter+1)) {
		t.Error("a failure is not remembered for its time")
	}
	for i := range Failures {
		w.call(fmt.Sprint("m", i), "c", Outcome{Code: driver.Unavailable, RetryAfter: time.Hour})
	}
	if w.IsOver(w.now.Add(time.Hour + forgetAfter)) {
		t.Error("one whose pause is not long over is over")
	}
	w.now = w.now.Add(time.Hour)
	w.Ask(Caller{"m1", "c"}, w.now)
	if w.IsOver(w.now.Add(time.Hour)) {
		t.Error("one with a probe is over")
	}
}

// call is a call that is under way.
type call struct {
	by    Caller
	probe int
}

// TestWorlds draws calls that begin and end in any order, and compares with the guarantees of the
// package comment.
func TestWorlds(t *testing.T) {
	worlds.Check(t, 200, func(t *rapid.T) {
		var b Breaker
		var underWay []call
		now, rows, pausedUntil, pauses := start, map[string]bool{}, time.Time{}, 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(rapid.SampledFrom([]time.Duration{0, time.Second, FirstPause, time.Minute}).Draw(t, "passes"))
			if len(underWay) > 0 && rapid.Bool().Draw(t, "ends") {
				i := rapid.IntRange(0, len(underWay)-1).Draw(t, "which")
				c := underWay[i]
				underWay = append(underWay[:i:i], underWay[i+1:]...)
				o := Outcome{Code: rapid.SampledFrom(driver.Codes()).Draw(t, "code"), Pending: rapid.IntRange(0, 9).Draw(t, "pending") == 0}
				if rapid.Bool().Draw(t, "refused") {
					o = refusal()
				}
				wasOpen, extends := b.IsOpen(), c.probe != 0 && c.probe == b.probe && !pausedUntil.After(now)
				change := b.End(c.by, c.probe, o, now)
				switch o.shows() {
				case works:
					clear(rows)
					pauses = 0
				case refused:
					rows[c.by.Machine] = true
				case nothing:
				}
				if mustBeOpen := len(rows) >= Failures; b.IsOpen() != mustBeOpen {
					t.Fatalf("open is %v after failures of %v", b.IsOpen(), rows)
				}
				if (change == Opened) != (!wasOpen && b.IsOpen()) || (change == Closed) != (wasOpen && !b.IsOpen()) {
					t.Fatalf("the change is %d, from open %v to %v", change, wasOpen, b.IsOpen())
				}
				if change == Opened || extends && b.IsOpen() && o.shows() == refused {
					pauses++
					pausedUntil = now.Add(min(FirstPause<<(pauses-1), LongestPause))
				}
				continue
			}
			c := call{
				by: Caller{fmt.Sprint("m", rapid.IntRange(0, 9).Draw(t, "machine")), rapid.SampledFrom([]string{"c", "c", "d"}).Draw(t, "class")},
			}
			knew := b.hasFailed(c.by.Class)
			answer := b.Ask(c.by, now)
			c.probe = answer.Probe
			probing := false
			for _, other := range underWay {
				probing = probing || other.probe != 0 && other.probe == b.probe
			}
			switch {
			case !b.IsOpen() && (!answer.Allowed || answer.Probe != 0):
				t.Fatalf("%+v while it is closed", answer)
			case b.IsOpen() && answer.Allowed && (probing || pausedUntil.After(now) && knew):
				t.Fatalf("%+v during another probe (%v), or until %s", answer, probing, pausedUntil)
			case b.IsOpen() && !answer.Allowed && !probing && !pausedUntil.After(now):
				t.Fatalf("%+v, and there is no probe", answer)
			case !answer.Allowed && (!answer.Again.After(now) || answer.Again.After(now.Add(LongestPause))):
				t.Fatalf("to ask again at %s is not in the future, or later than a pause", answer.Again)
			}
			if answer.Allowed {
				underWay = append(underWay, c)
			}
		}
	})
}
