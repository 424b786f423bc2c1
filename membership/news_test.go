package membership

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestNews(t *testing.T) {
	now := Moment{Monotonic: time.Minute, Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	o := NewOthers(DefaultConfig(), Identification{Fleet: "fleet", Session: "r-0_aaaaa"})
	seen := func(version string, notes map[string]string) {
		holder := "r-1_bbbbb"
		o.Observe(now, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: SessionLeaseName("fleet", "r-1"), UID: "u", ResourceVersion: version, Annotations: notes},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
		}, true)
	}
	expect := func(what string, lives bool, want ...string) {
		t.Helper()
		got, gotLives := o.News()
		if diff := cmp.Diff(want, got); diff != "" || lives != gotLives {
			t.Errorf("%s: want lives %v, got %v (-want +got):\n%s", what, lives, gotLives, diff)
		}
	}
	seen("1", nil)
	seen("2", map[string]string{"note": "x"})
	expect("a session, and a note of it", true, "r-1", "r-1")
	expect("nothing", false)
	seen("3", map[string]string{"note": "y"})
	expect("a note", false, "r-1")
	seen("4", map[string]string{"note": "y", v1alpha1.AnnotationCreated: "r-1_bbbbb"})
	expect("the mark of a Lease that was created", true, "r-1")
	o.Missed(now, "r-1")
	expect("a Lease that is gone", true, "r-1")
}

// A renewal that is observed too late does not prove that the watch is in time.
func TestARenewalThatIsObservedLateCountsAsUnseen(t *testing.T) {
	start := Moment{Monotonic: time.Minute, Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	for after, late := range map[time.Duration]bool{4*time.Second - 1: false, 4 * time.Second: true} {
		o := NewOthers(DefaultConfig(), Identification{Fleet: "fleet", Session: "r-0_aaaaa"})
		o.Renewing(start, start.Wall)
		o.Acknowledged(start)
		holder, renewed := "r-0_aaaaa", metav1.NewMicroTime(start.Wall)
		o.Observe(start.Add(after), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: SessionLeaseName("fleet", "r-0"), UID: "u", ResourceVersion: "1"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed},
		}, true)
		if unseen := !o.Unseen().IsZero(); unseen != late {
			t.Errorf("after %v: want it unseen: %v, got %v", after, late, unseen)
		}
	}
}
