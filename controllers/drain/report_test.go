package drain

import (
	"testing"
	"time"
)

func progress(left int, stuck bool) Verdict {
	v := Verdict{Wake: time.Hour, Progress: Progress{Node: "n", Left: left, Deadline: born}}
	if stuck {
		v.Progress.Blocked = []Blocked{{IsMisconfigured: true}}
	}
	return v
}

// Each reported text is a write.
func TestProgressIsReportedEveryFewSeconds(t *testing.T) {
	reported, first := Reported{}.Next(born, progress(5, false))
	if first.Text == "" || first.Wake != time.Hour {
		t.Fatalf("first report: %+v", first)
	}
	reported, soon := reported.Next(born.Add(time.Second), progress(4, false))
	if soon.Text != first.Text || soon.Wake != 4*time.Second {
		t.Errorf("1 s later: %+v, want the same text, and to be woken after 4 s", soon)
	}
	if again := reported.Again(); again.Text != first.Text || again.Wake > time.Second {
		t.Errorf("to continue at once: %+v", again)
	}
	reported, stuck := reported.Next(born.Add(2*time.Second), progress(4, true))
	if stuck.Text == first.Text || !stuck.IsStuck {
		t.Errorf("stuck after 2 s: %+v, want it reported at once", stuck)
	}
	reported, _ = reported.Next(born.Add(3*time.Second), progress(3, true))
	if _, later := reported.Next(born.Add(7*time.Second), progress(3, true)); later.Text == stuck.Text || later.Wake != time.Hour {
		t.Errorf("7 s later: %+v, want a new text", later)
	}
}
