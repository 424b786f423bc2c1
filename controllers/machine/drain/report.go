package drain

import (
	"fmt"
	"time"
)

const (
	// reportPause is how long a change of the progress waits at least after the one before. Each costs a write.
	reportPause = 5 * time.Second
	// askAgain is when a target cluster is asked again that does not answer.
	askAgain = 10 * time.Second
)

// Report is what the rest of a machine's life has to know of its drain.
type Report struct {
	State State
	// Text for people; "" when there is nothing to say yet.
	Text string
	// IsStuck says that somebody has to change something, or the drain will be forced.
	IsStuck bool
	// Ending says that the drain has ended just now, and that there was something to drain.
	Ending bool
	// Wake is when to look again at the latest, while State is Draining; 0 means when something happens.
	Wake time.Duration
}

// Reported is the progress that was told last, and when. The zero value is that of a process that has told nothing yet.
type Reported struct {
	text    string
	isStuck bool
	at      time.Time
}

// Next returns the report of a drain that goes on. It tells what was told before while that is not long ago, and has the
// drain looked at when there may be news; that it is stuck is told at once.
func (t Reported) Next(now time.Time, v Verdict) (Reported, Report) {
	return t.report(now, Report{State: Draining, Text: v.Progress.String(), IsStuck: v.Progress.IsStuck(), Wake: v.Wake})
}

// Unanswered returns the report of a drain that goes on when the target cluster answers again. Node is "" for a machine that
// has none.
func (t Reported) Unanswered(now time.Time, node string, why error) (Reported, Report) {
	text := fmt.Sprintf("The target cluster does not answer: %v", why)
	if node != "" {
		text = fmt.Sprintf("Draining Node %s: the target cluster does not answer: %v", node, why)
	}
	return t.report(now, Report{State: Draining, Text: text, IsStuck: true, Wake: askAgain})
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

// Again returns the report of a drain that goes on at once, when others have had their turn.
func (t Reported) Again() Report {
	return Report{State: Draining, Text: t.text, IsStuck: t.isStuck, Wake: time.Millisecond}
}

// End returns the report of a drain that has ended. wasThere says that there was something to drain.
func End(v Verdict, wasThere bool) Report {
	r := Report{State: v.State, Ending: wasThere, Text: fmt.Sprintf("Node %s is drained; its VM is deleted now", v.Progress.Node)}
	if v.State != Drained {
		r.Text = fmt.Sprintf("The drain of Node %s was ended by force, because %s; its VM is deleted now", v.Progress.Node, v.Cause)
	}
	return r
}

// EndForUpdate returns the report of a drain that has ended, of a Node that is to be updated in place.
func EndForUpdate(v Verdict) Report {
	r := Report{State: v.State, Text: fmt.Sprintf("Node %s is drained", v.Progress.Node)}
	if v.State != Drained {
		r.Text = fmt.Sprintf("The drain of Node %s was ended by force, because %s", v.Progress.Node, v.Cause)
	}
	return r
}

// GiveUp is the report of a drain that is forced while the target cluster does not answer, so that nothing can be drained.
func GiveUp(node string) Report {
	text := "The drain of Node %s was ended by force, because nobody waits for it any longer and the target cluster does not answer; its VM is deleted now"
	return Report{State: GivenUp, Ending: true, Text: fmt.Sprintf(text, node)}
}

// IsOver says that nobody waits for the pods any longer, whatever goes on at the Node.
func (o Order) IsOver(now time.Time) bool { return o.Force || !now.Before(o.deadline()) }
