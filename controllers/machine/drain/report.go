package drain

import (
	"fmt"
	"time"
)

// tellPause is how long a change of the progress waits at least after the one before. Each costs a write.
const tellPause = 5 * time.Second

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

// Told is the progress that was told last, and when. The zero value is that of a process that has told nothing yet.
type Told struct {
	text    string
	isStuck bool
	at      time.Time
}

// Next returns the report of a drain that goes on. It tells what was told before while that is not long ago, and has the
// drain looked at when there may be news; that it is stuck is told at once.
func (t Told) Next(now time.Time, v Verdict) (Told, Report) {
	text, isStuck := v.Progress.String(), v.Progress.IsStuck()
	r := Report{State: Draining, Text: text, IsStuck: isStuck, Wake: v.Wake}
	switch until := t.at.Add(tellPause); {
	case text == t.text:
		return t, r
	case isStuck == t.isStuck && now.Before(until) && !t.at.IsZero():
		r.Text = t.text
		if wait := until.Sub(now); r.Wake == 0 || wait < r.Wake {
			r.Wake = wait
		}
		return t, r
	}
	return Told{text: text, isStuck: isStuck, at: now}, r
}

// Again returns the report of a drain that goes on at once, when others have had their turn.
func (t Told) Again() Report {
	return Report{State: Draining, Text: t.text, IsStuck: t.isStuck, Wake: time.Millisecond}
}

// End returns the report of a drain that has ended. wasThere says that there was something to drain.
func End(v Verdict, wasThere bool) Report {
	r := Report{State: v.State, Ending: wasThere}
	if v.State == Drained {
		r.Text = fmt.Sprintf("Node %s is drained; its VM is deleted now", v.Progress.Node)
	} else {
		r.Text = fmt.Sprintf("Node %s was not drained, %s; its VM is deleted now", v.Progress.Node, v.Cause)
	}
	return r
}

// Unanswered is the report of a drain that is forced while the target cluster does not answer: its Node cannot be drained.
func Unanswered(node string) Report {
	return Report{State: GivenUp, Ending: true, Text: fmt.Sprintf("Node %s was not drained: the target cluster does not answer, and nobody waits for it any longer", node)}
}

// IsOver says that nobody waits for the pods any longer, whatever goes on at the Node.
func (o Order) IsOver(now time.Time) bool { return o.Force || !now.Before(o.deadline()) }
