package drain

import (
	"testing"
	"time"
)

func progress(left int, stuck bool) Verdict {
	v := Verdict{Wake: time.Hour, Progress: Progress{Node: "n", Left: left, Deadline: born}}
	if stuck {
		v.Progress.Held = []Held{{IsMisconfigured: true}}
	}
	return v
}

// Each text that is told is a write.
func TestProgressIsToldEveryFewSeconds(t *testing.T) {
	told, first := Told{}.Next(born, progress(5, false))
	if first.Text == "" || first.Wake != time.Hour {
		t.Fatalf("told first: %+v", first)
	}
	told, soon := told.Next(born.Add(time.Second), progress(4, false))
	if soon.Text != first.Text || soon.Wake != 4*time.Second {
		t.Errorf("1 s later: %+v, want the same text, and to be woken after 4 s", soon)
	}
	if again := told.Again(); again.Text != first.Text || again.Wake > time.Second {
		t.Errorf("to go on at once: %+v", again)
	}
	told, stuck := told.Next(born.Add(2*time.Second), progress(4, true))
	if stuck.Text == first.Text || !stuck.IsStuck {
		t.Errorf("stuck after 2 s: %+v, want it told at once", stuck)
	}
	told, _ = told.Next(born.Add(3*time.Second), progress(3, true))
	if _, later := told.Next(born.Add(7*time.Second), progress(3, true)); later.Text == stuck.Text || later.Wake != time.Hour {
		t.Errorf("7 s later: %+v, want news", later)
	}
}
