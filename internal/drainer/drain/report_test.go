package drain

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// How a drain has ended, and which pods were deleted without grace.
func TestEndNamesPodsThatHadNoGrace(t *testing.T) {
	for _, tc := range []struct {
		pods  int
		state State
		cause Cause
		want  string
	}{
		{0, Drained, "", "Node n is drained; its VM is deleted now"},
		{1, Drained, "", "Node n is drained; deleted without grace: a/p0; its VM is deleted now"},
		{0, GivenUp, CauseTimeout, "The drain of Node n was ended by force, because the time for the drain is over; its VM is deleted now"},
		{2, GivenUp, CauseTimeout, "The drain of Node n was ended by force, because the time for the drain is over; deleted without grace: " +
			"a/p0 and a/p1; its VM is deleted now"},
		{5, GivenUp, CauseOrder, "The drain of Node n was ended by force, because the machine has the label force-deletion; " +
			"deleted without grace: a/p0, a/p1, a/p2 and 2 more; its VM is deleted now"},
	} {
		v := Verdict{State: tc.state, Cause: tc.cause, Progress: Progress{Node: "n"}}
		for i := range tc.pods {
			v.Progress.Forced = v.Progress.Forced.With(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint("p", i)}})
		}
		if got := End(v, true).Text; got != tc.want {
			t.Errorf("%d pods, %s: %q, want %q", tc.pods, tc.cause, got, tc.want)
		}
	}
}

// TestReportsOfDrainsAreKnown as such, and the text of an end is not.
func TestReportsOfDrainsAreKnown(t *testing.T) {
	_, away := Reported{}.Unanswered(time.Time{}, "n", errors.New("away"))
	for text, want := range map[string]bool{
		Progress{Node: "n", Left: 1}.String(): true, away.Text: true, "Deleting the VM": false, "": false,
	} {
		if got := IsReport(text); got != want {
			t.Errorf("%q is a report of a drain: %t", text, got)
		}
	}
}
