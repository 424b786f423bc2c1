package decide

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// A resource without an ID cannot be deleted, and cannot be distinguished from another one.
func TestListingResourceWithoutIDIsNotSuspected(t *testing.T) {
	l := NewListing("n", nil, Record{})
	l.Add([]driver.Resource{vm("", "gone")})
	if suspects, more := l.Suspects(); len(suspects) > 0 || more > 0 {
		t.Errorf("suspects: %v and %d more, want none", suspects, more)
	}
}

// The Machine of each double is read live: a VM that is listed twice must not cost a read.
func TestListingDoublesAreVMsWithDifferentIDs(t *testing.T) {
	l := NewListing("n", uids("a", "b"), Record{})
	l.Add([]driver.Resource{vm("v", "a"), vm("v", "a"), vm("w", "b"), vm("x", "b")})
	if got := l.Doubles(); len(got) != 1 || got[0].MachineUID != "b" {
		t.Errorf("doubles: %v, want one VM of b", got)
	}
}

func TestListingManyDoublesAreBoundedAndInOrder(t *testing.T) {
	machines, doubles := map[types.UID]bool{}, 2*MaxSuspects
	var listed []driver.Resource
	for i := range doubles {
		uid := types.UID(fmt.Sprintf("machine-%04d", i))
		machines[uid] = true
		listed = append(listed, vm(fmt.Sprint("first-", i), uid), vm(fmt.Sprint("second-", i), uid))
	}
	l := NewListing("n", machines, Record{})
	l.Add(listed)
	got := l.Doubles()
	if len(got) != MaxSuspects {
		t.Errorf("%d Machines with several VMs, want %d", len(got), MaxSuspects)
	}
	if !slices.IsSortedFunc(got, func(a, b driver.Resource) int { return strings.Compare(string(a.MachineUID), string(b.MachineUID)) }) {
		t.Error("the Machines with several VMs are not in order")
	}
}

func TestListingManyVMsOfOneMachineAreBounded(t *testing.T) {
	l := NewListing("n", uids("a"), Record{})
	for i := range 3 * driver.MaxOwned {
		l.Add([]driver.Resource{vm(fmt.Sprint("v", i), "a")})
	}
	l.Double("a", "v0")
	if suspects, _ := l.Suspects(); len(suspects) != driver.MaxOwned-1 {
		t.Errorf("%d suspects, want all but one of %d VMs", len(suspects), driver.MaxOwned)
	}
}

// Two lists of the same resources in another order have the same suspects: an approval names them.
func TestListingManySuspectsHaveBoundedMemoryAndAnOrder(t *testing.T) {
	of := func(resources []driver.Resource) []Suspect {
		l := NewListing("n", nil, Record{})
		l.Add(resources)
		if len(l.suspects) > MaxSuspects {
			t.Errorf("%d suspects are in memory, want at most %d", len(l.suspects), MaxSuspects)
		}
		suspects, _ := l.Suspects()
		return suspects
	}
	var listed []driver.Resource
	for i := range MaxSuspects {
		listed = append(listed, vm(fmt.Sprint("v", i), "gone"))
	}
	forwards := of(listed)
	slices.Reverse(listed)
	if diff := cmp.Diff(forwards, of(listed)); diff != "" {
		t.Errorf("suspects of the list in reverse (-forwards +backwards):\n%s", diff)
	}
	of(append(listed, vm("one-more", "gone"), vm("two-more", "gone")))
}

// The record that was read is compared with later: a copy with other ages must not change it.
func TestRecordAgedLeavesTheRecordAsItIs(t *testing.T) {
	r := Record{Suspects: map[Key]Entry{"k": {Age: 1}}}
	if older := r.Aged(time.Minute); older.Suspects["k"].Age != 61 || r.Suspects["k"].Age != 1 {
		t.Errorf("ages %d and %d, want 61, and still 1", older.Suspects["k"].Age, r.Suspects["k"].Age)
	}
}

// Of a namespace with many Machines only what suspects need is in memory, and the first doubt is
// the one that is shown.
func TestMachinesAreKeptOnlyForSuspects(t *testing.T) {
	m := NewMachines([]Suspect{{Resource: vm("v", "u")}}, map[string]bool{"c": true})
	for i := range 100 {
		m.Add("m", Machine{UID: types.UID(fmt.Sprint("u", i)), ProviderID: fmt.Sprint("v", i)}, "c")
	}
	if len(m.uids) != 1 || len(m.ids) != 1 {
		t.Errorf("%d UIDs and %d provider IDs are in memory, want those of 1 suspect", len(m.uids), len(m.ids))
	}
	m.Add("first", Machine{UID: "x"}, "gone")
	m.AddUndecodable("second")
	if !strings.Contains(m.wrong, "first") {
		t.Errorf("the doubt is %q, want that about the first Machine", m.wrong)
	}
}

func TestLedgerEmptyAnnotationHasNoReservations(t *testing.T) {
	if l, err := ParseLedger(""); err != nil || len(l.Reserved) > 0 {
		t.Errorf("%v, %v, want an empty ledger", l, err)
	}
}

// A forged age must not make a reservation count for longer than an hour.
func TestLedgerNegativeAgeCountsAsZero(t *testing.T) {
	l := Ledger{Reserved: map[string]map[Key]int64{"n": {"k": -86400}}}
	if l = l.Aged(Hour - time.Second); !l.Has("n", "k") {
		t.Error("the reservation does not count for an hour")
	}
	if l = l.Aged(time.Second); l.Has("n", "k") {
		t.Error("the reservation counts for longer than an hour")
	}
}

// What is reserved already is no further deletion, also when the limit was lowered since.
func TestLedgerReservesAgainWhatWasReservedBeforeTheLimitWasLowered(t *testing.T) {
	suspects := []Suspect{{Resource: vm("v", "u")}, {Resource: vm("w", "u")}}
	l, _ := Ledger{}.Reserve("n", suspects, 2)
	if _, why := l.Aged(time.Minute).Reserve("n", suspects, 1); why != "" {
		t.Errorf("not reserved again: %s", why)
	}
}

// A cloud that repeats one resource takes neither memory for each time nor the places of other
// suspects.
func TestListingRepeatedResourceIsOneSuspect(t *testing.T) {
	known := Suspect{Resource: vm("known", "gone")}
	l := NewListing("n", nil, Record{Suspects: map[Key]Entry{known.Key(): {Age: 5}}})
	for range MaxSuspects + 1 {
		l.Add([]driver.Resource{vm("new", "gone"), known.Resource})
	}
	l.Add([]driver.Resource{vm("other", "gone")})
	if suspects, more := l.Suspects(); len(suspects) != 3 || len(l.suspects) != 3 || more != 0 {
		t.Errorf("%d suspects, %d in memory and %d more, want 3", len(suspects), len(l.suspects), more)
	}
}
