package harness

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func lease(kind, name, holder string) coordinationv1.Lease {
	l := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelLease: kind}}}
	if holder != "" {
		l.Spec.HolderIdentity = &holder
	}
	return l
}

func TestAllHeld(t *testing.T) {
	session := lease(v1alpha1.LeaseOfSession, "fleet-session-fleet-0", "fleet-0_aaaaa")
	emptied := lease(v1alpha1.LeaseOfSession, "fleet-session-fleet-1", "")
	slot := func(holder string) coordinationv1.Lease { return lease(v1alpha1.LeaseOfSlot, "fleet-slot-000", holder) }
	for name, test := range map[string]struct {
		leases []coordinationv1.Lease
		slots  int
		want   string
	}{
		"held":               {[]coordinationv1.Lease{session, emptied, slot("fleet-0_aaaaa")}, 1, ""},
		"held by the dead":   {[]coordinationv1.Lease{session, emptied, slot("fleet-0_bbbbb")}, 1, "fleet-0_bbbbb"},
		"without a holder":   {[]coordinationv1.Lease{session, emptied, slot("")}, 1, `held by ""`},
		"not all are there":  {[]coordinationv1.Lease{session, slot("fleet-0_aaaaa")}, 2, "expected 2 slots"},
		"no slots, as asked": {[]coordinationv1.Lease{session, emptied}, 0, ""},
	} {
		err := allHeld(test.leases, test.slots)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestAllReportNeedsMoreThanALease: a Lease that names a session is not enough.
func TestAllReportNeedsMoreThanALease(t *testing.T) {
	leases := []coordinationv1.Lease{
		lease(v1alpha1.LeaseOfSession, "fleet-session-fleet-0", "fleet-0_aaaaa"),
		lease(v1alpha1.LeaseOfSlot, "fleet-slot-000", "fleet-0_aaaaa"),
		lease(v1alpha1.LeaseOfSlot, "fleet-slot-001", "fleet-0_aaaaa"),
	}
	reports := func(session string, suspended bool, held ...bool) SlotsView {
		view := SlotsView{Session: session, Suspended: suspended}
		for slot, h := range held {
			view.Here = append(view.Here, SlotView{Slot: slot, Held: h})
		}
		return view
	}
	for name, test := range map[string]struct {
		views []SlotsView
		want  string
	}{
		"it reports that":            {[]SlotsView{reports("fleet-0_aaaaa", false, true, true)}, ""},
		"it does not answer":         {nil, "fleet-slot-000 names fleet-0_aaaaa"},
		"it is suspended":            {[]SlotsView{reports("fleet-0_aaaaa", true, true, true)}, "may act: false"},
		"it does not know":           {[]SlotsView{reports("fleet-0_aaaaa", false, true)}, "fleet-slot-001 names fleet-0_aaaaa"},
		"it only has some in flight": {[]SlotsView{reports("fleet-0_aaaaa", false, true, false)}, "fleet-slot-001 names fleet-0_aaaaa"},
		"its next session answers":   {[]SlotsView{reports("fleet-0_bbbbb", false, true, true)}, "fleet-slot-000 names fleet-0_aaaaa"},
		"another reports that":       {[]SlotsView{reports("fleet-1_ccccc", false, true, true)}, "fleet-slot-000 names fleet-0_aaaaa"},
	} {
		err := allReport(leases, 2, test.views)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
