package drain

import (
	"fmt"
	"strings"
	"time"
)

const (
	// reportPause is the minimum time between two changed reports. Each costs a write.
	reportPause = 5 * time.Second
	// retryTarget is when a target cluster that does not answer is tried again.
	retryTarget = 10 * time.Second
	// UndrainedPause is the wait before a drain is begun again that has ended with pods left, of a
	// Node whose VM stays.
	UndrainedPause = time.Minute
)

// Report contains what the other steps of a machine's life need of its drain.
type Report struct {
	State State
	// Text for messages; "" if there is none yet.
	Text string
	// IsStuck reports whether a user has to change something, or the drain will be forced.
	IsStuck bool
	// Ending reports whether the drain has just ended, and there was something to drain.
	Ending bool
	// Wake is when to decide again at the latest, while State is Draining; 0 means when an event
	// arrives.
	Wake time.Duration
}

// Reported is the last reported progress, and its time. The zero value is that of a process without
// a report.
type Reported struct {
	text    string
	isStuck bool
	at      time.Time
}

// Next returns the report of a drain that continues. It repeats the last one while that is recent,
// and sets the time of the next; that the drain is stuck is reported at once.
func (t Reported) Next(now time.Time, v Verdict) (Reported, Report) {
	return t.report(now, Report{State: Draining, Text: v.Progress.String(), IsStuck: v.Progress.IsStuck(), Wake: v.Wake})
}

// Unanswered returns the report of a drain that continues when the target cluster answers again.
// Node is "" for a machine that has none.
func (t Reported) Unanswered(now time.Time, node string, why error) (Reported, Report) {
	text := fmt.Sprintf("The target cluster does not answer: %v", why)
	if node != "" {
		text = fmt.Sprintf(reportBegin+"%s: the target cluster does not answer: %v", node, why)
	}
	return t.report(now, Report{State: Draining, Text: text, IsStuck: true, Wake: retryTarget})
}

func (t Reported) report(now time.Time, r Report) (Reported, Report) {
	switch until := t.at.Add(reportPause); {
	case r.Text == t.text, r.Text == "":
		return t, r
	case r.IsStuck == t.isStuck && now.Before(until) && !t.at.IsZero():
		r.Text = t.text
		if wait := until.Sub(now); r.Wake == 0 || wait < r.Wake {
			r.Wake = wait
		}
		return t, r
	}
	return Reported{text: r.Text, isStuck: r.IsStuck, at: now}, r
}

// Again returns the report of a drain that continues at once, after other keys.
func (t Reported) Again() Report {
	return Report{State: Draining, Text: t.text, IsStuck: t.isStuck, Wake: time.Millisecond}
}

// End returns the report of a drain that has ended. wasThere reports whether there was something to
// drain.
func End(v Verdict, wasThere bool) Report {
	return Report{State: v.State, Ending: wasThere, Text: ended(v) + "; its VM is deleted now"}
}

// ended returns how a drain has ended, and which pods were deleted without grace for it.
func ended(v Verdict) string {
	text := fmt.Sprintf("Node %s is drained", v.Progress.Node)
	if v.State != Drained {
		text = fmt.Sprintf("The drain of Node %s was ended by force, because %s", v.Progress.Node, v.Cause)
	}
	if forced := v.Progress.Forced; !forced.IsNone() {
		text += "; deleted without grace: " + forced.String()
	}
	return text
}

// EvictionTimedOut returns the message about pods of a drain that is not forced, which were deleted
// without grace.
func EvictionTimedOut(node string, order Order, pods Forced) string {
	return fmt.Sprintf("Pods of Node %s that could not be evicted for %s (maxEvictRetries) were deleted without grace: %s",
		node, order.EvictTime, pods)
}

// NextForUpdate returns the report of a drain of a Node that is updated while its VM stays: how far
// it is, or how it has ended.
func (t Reported) NextForUpdate(now time.Time, v Verdict) (Reported, Report) {
	switch {
	case v.Do != Rest:
		return t, t.Again()
	case !v.State.Ended():
		return t.Next(now, v)
	case v.Progress.Left > 0:
		return t, Report{State: Draining, Text: v.Progress.String(), IsStuck: true, Wake: UndrainedPause}
	}
	return t, Report{State: v.State, Text: ended(v)}
}

// ReportGivenUp returns the report of a drain that is forced while the target cluster does not
// answer, so that nothing can be drained.
func ReportGivenUp(node string) Report {
	text := "The drain of Node %s was ended by force, because the target cluster does not answer and the drain timeout is over or the " +
		"deletion is forced; its VM is deleted now"
	return Report{State: GivenUp, Ending: true, Text: fmt.Sprintf(text, node)}
}

// IsOver reports whether the pods are no longer awaited, regardless of what happens on the Node.
func (o Order) IsOver() bool { return o.Force || !o.Now.Before(o.deadline()) }

// reportBegin is how each report of a drain that goes on begins.
const reportBegin = "Draining Node "

// IsReport reports whether a text is the report of a drain that goes on. It is for views: the last
// operation of a machine that is being deleted has no other mark of its drain.
func IsReport(text string) bool { return strings.HasPrefix(text, reportBegin) }
