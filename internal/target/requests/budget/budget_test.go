package budget

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a Budget, a Breaker and their time. Steps are words of a line: "r" and "w" send a read
// or a write that is answered, "R" and "W" one that fails, "r-" one whose credentials are rejected,
// "r!" one that shows nothing, "r?" one that does not end, "+2s" lets time pass, and "=text"
// expects what the last word resulted in.
type world struct {
	*testing.T
	Budget
	Breaker

	now time.Time
}

func (w *world) do(word string, share int) (result string) {
	kind := Read
	if strings.ToLower(word)[0] == 'w' {
		kind = Write
	}
	answer := w.Ask(&w.Breaker, kind, share, w.now)
	switch {
	case answer.Refusal != None:
		return fmt.Sprint(answer.Refusal, ":", answer.Wait)
	case strings.HasSuffix(word, "?"):
		return "sent"
	}
	o := Outcome{Evidence: Answered}
	switch {
	case strings.HasSuffix(word, "!"):
		o = Outcome{}
	case strings.HasSuffix(word, "-"):
		o = Outcome{Evidence: Rejected, Why: "status 401"}
	case word == strings.ToUpper(word):
		o = Outcome{Evidence: Failed, Why: "no answer"}
	}
	return [...]string{Unchanged: "ok", Opened: "opened", Closed: "closed"}[w.End(&w.Breaker, kind, answer.Probe, o, w.now)]
}

func TestDecisions(t *testing.T) {
	for _, tc := range []struct{ name, steps string }{
		{"failures in a row", "R R R R =ok R =opened r =failures:2s"},
		{"an answer ends the row", "R R R R r R R R R =ok r =ok"},
		{"what shows nothing does not", "R R R R r! R =opened"},
		{"credentials that are rejected", "r- =ok r- =opened r =failures:2s"},
		{"credentials that are replaced", "r- r r- =ok r =ok"},
		{"rejections and failures", "r- R r- R r- =opened"},
		{"writes alone", "W r W r W r W r W =opened r =ok w =failures:2s"},
		{
			"pauses double up to the longest",
			"R R R R R +2s R =ok r =failures:4s +4s R r =failures:8s +8s R +16s R r =failures:30s +30s R r =failures:30s",
		},
		{"one is sent at the end of the pause", "R R R R R +2s r? =sent r =failures:4s w =ok"},
		{"an answer closes it", "R R R R R +2s r =closed r =ok R R R R =ok"},
		{"a server that answers now and then", "R R R R R +2s r =closed R R R R R =opened r =failures:4s +4s r R R R R R r =failures:8s"},
		{"and is well for a while", "R R R R R +2s r +3m R R R R R =opened r =failures:2s"},
		{"the share", "r? r? r? =sent r =in_flight:1.005s w =in_flight:1.01s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, last := &world{T: t, now: start}, ""
			for word := range strings.FieldsSeq(tc.steps) {
				switch word[0] {
				case '=':
					if last != word[1:] {
						t.Fatalf("at %s: got %s", word, last)
					}
				case '+':
					d, err := time.ParseDuration(word[1:])
					if err != nil {
						t.Fatal(err)
					}
					w.now = w.now.Add(d)
				default:
					last = w.do(word, 3)
				}
			}
		})
	}
}

func TestRate(t *testing.T) {
	w := &world{T: t, now: start}
	for i := range Burst {
		if got := w.do("r", MostInFlight); got != "ok" {
			t.Fatalf("request %d of a burst: %s", i, got)
		}
	}
	if got := w.do("r", MostInFlight); got != "rate:10ms" {
		t.Errorf("after the burst: got %s", got)
	}
	w.now = w.now.Add(time.Second)
	sent := 0
	for w.do("r", MostInFlight) == "ok" {
		sent++
	}
	if sent != Rate {
		t.Errorf("a second later: %d were sent, want %d", sent, Rate)
	}
}

// The end of a request from before the pauses must not shorten or lengthen them.
func TestLateEnds(t *testing.T) {
	w := &world{T: t, now: start}
	for range 2 * Failures {
		w.do("r?", MostInFlight)
	}
	failed := Outcome{Evidence: Failed, Why: "late", RetryAfter: time.Hour}
	for i := range 2 * Failures {
		w.now = w.now.Add(100 * time.Millisecond)
		if change := w.End(&w.Breaker, Read, false, failed, w.now); (change == Opened) != (i+1 == Failures) {
			t.Errorf("end %d: the change is %d", i, change)
		}
	}
	if why, wait := w.Problem(w.now); wait != LongestPause-Failures*100*time.Millisecond ||
		!strings.Contains(why, "has failed 5 reads or more in a row, the last one with: late") {
		t.Errorf("got the problem %q for %s, want the longest pause for what the server requests", why, wait)
	}
	if why, wait := w.Problem(w.now.Add(LongestPause)); why != "" || wait != 0 || w.InFlight() != 0 {
		t.Errorf("at the end of the pause: got the problem %q", why)
	}
}

func TestShare(t *testing.T) {
	for clusters, want := range map[int]int{0: 40, 1: 40, 10: 40, 30: 13, 100: 4, 1000: 4} {
		if got := Share(400, clusters); got != want {
			t.Errorf("of %d clusters: got %d, want %d", clusters, got, want)
		}
	}
}
