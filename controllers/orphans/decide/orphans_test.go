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
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
)

// vm returns a VM that was created for a Machine.
func vm(id string, machine types.UID) driver.Resource {
	return driver.Resource{
		Kind: driver.ResourceVM, ID: id, Namespace: "n", Machine: "name-of-" + string(machine), MachineUID: machine, NodeName: "node-" + id,
	}
}

func uids(of ...types.UID) map[types.UID]bool {
	found := map[types.UID]bool{}
	for _, uid := range of {
		found[uid] = true
	}
	return found
}

func ids(suspects []Suspect) (found []string) {
	for _, s := range suspects {
		text := s.ID
		if s.Surplus {
			text += " surplus"
		}
		found = append(found, text)
	}
	slices.Sort(found)
	return found
}

func TestListing(t *testing.T) {
	elsewhere, untagged := vm("v", "gone"), vm("v", "")
	elsewhere.Namespace = "other"
	disk := func(machine types.UID) driver.Resource {
		return driver.Resource{Kind: driver.ResourceDisk, ID: "d", Namespace: "n", MachineUID: machine}
	}
	for _, tc := range []struct {
		name    string
		listed  []driver.Resource
		machine string // provider ID of the Machine "a", read live
		want    []string
	}{
		{name: "nothing"},
		{name: "a VM of a Machine", listed: []driver.Resource{vm("v", "a")}},
		{name: "a VM without a Machine", listed: []driver.Resource{vm("v", "gone")}, want: []string{"v"}},
		{name: "a disk of a Machine", listed: []driver.Resource{disk("a"), disk("a")}},
		{name: "a disk without a Machine", listed: []driver.Resource{disk("gone")}, want: []string{"d"}},
		{name: "another namespace", listed: []driver.Resource{elsewhere}},
		{name: "no UID", listed: []driver.Resource{untagged}},
		{name: "listed twice", listed: []driver.Resource{vm("v", "gone"), vm("v", "gone")}, want: []string{"v"}},
		{name: "one VM listed twice", listed: []driver.Resource{vm("v", "a"), vm("v", "a")}, machine: "v"},
		{
			name: "two VMs, the first is the Machine's", listed: []driver.Resource{vm("v", "a"), vm("w", "a")}, machine: "v",
			want: []string{"w surplus"},
		},
		{
			name: "two VMs, the second is the Machine's", listed: []driver.Resource{vm("v", "a"), vm("w", "a")}, machine: "w",
			want: []string{"v surplus"},
		},
		{name: "two VMs, none is the Machine's", listed: []driver.Resource{vm("v", "a"), vm("w", "a")}, machine: "x"},
		{name: "two VMs, the Machine names none", listed: []driver.Resource{vm("v", "a"), vm("w", "a")}},
		{
			name: "three VMs", listed: []driver.Resource{vm("v", "a"), vm("w", "a"), vm("x", "a")}, machine: "x",
			want: []string{"v surplus", "w surplus"},
		},
	} {
		l := NewListing("n", uids("a", "b"), Record{})
		l.Add(tc.listed)
		for _, double := range l.Doubles() {
			l.Double(double.MachineUID, tc.machine)
		}
		suspects, more := l.Suspects()
		if diff := cmp.Diff(tc.want, ids(suspects)); diff != "" || more != 0 {
			t.Errorf("%s: %d more, suspects (-want +got):\n%s", tc.name, more, diff)
		}
	}
}

func TestSuspicionsAreBoundedAndOldOnesStay(t *testing.T) {
	old := Suspect{Resource: vm("old", "old")}
	l := NewListing("n", nil, Record{Suspects: map[Key]Entry{old.Key(): {Age: 5}}})
	for i := range 3 * MaxSuspects {
		l.Add([]driver.Resource{vm(fmt.Sprint("new-", i), types.UID(fmt.Sprint("gone-", i)))})
	}
	l.Add([]driver.Resource{old.Resource})
	suspects, more := l.Suspects()
	if len(suspects) != MaxSuspects || more != 2*MaxSuspects+1 || suspects[0].ID != "old" {
		t.Errorf("%d suspects and %d more, the first is %s", len(suspects), more, suspects[0].ID)
	}
	outcomes := map[Key]receipt.Outcome{}
	for _, s := range suspects {
		outcomes[s.Key()] = receipt.Accepted
	}
	next := Record{Scope: "s"}.Next(suspects, more).WithOutcomes(outcomes)
	if text := next.Text(); len(text) > 32<<10 || len(ParseRecord(text, "s").Suspects) != MaxSuspects {
		t.Errorf("the annotation has %d bytes", len(text))
	}
}

func TestRecord(t *testing.T) {
	s, other := Suspect{Resource: vm("v", "gone")}, Suspect{Resource: vm("w", "gone")}
	surplus := Suspect{Resource: s.Resource, Surplus: true}
	r := Record{Scope: "s", Write: "1"}.Next([]Suspect{s}, 0).Aged(90*time.Second + time.Millisecond)
	if got := r.Suspects[s.Key()].Duration(); got != 90*time.Second {
		t.Errorf("the age is %s", got)
	}
	r = r.Approve([]Suspect{s, other}).WithOutcomes(map[Key]receipt.Outcome{s.Key(): receipt.Accepted, other.Key(): receipt.Accepted})
	for _, tc := range []struct {
		name     string
		suspects []Suspect
		want     map[Key]Entry
	}{
		{"still listed, and a new one", []Suspect{s, other}, map[Key]Entry{
			s.Key(): {Age: 90, Approved: true, Recorded: receipt.Accepted}, other.Key(): {},
		}},
		{"not listed any more", []Suspect{other}, map[Key]Entry{other.Key(): {}}},
		{"suspected for another reason", []Suspect{surplus}, map[Key]Entry{surplus.Key(): {}}},
	} {
		if diff := cmp.Diff(tc.want, ParseRecord(r.Next(tc.suspects, 0).Text(), "s").Suspects); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
	if text := r.Next(nil, 0).Text(); text != "" {
		t.Errorf("no suspicion is recorded as %s", text)
	}
}

func TestWhatIsNotARecord(t *testing.T) {
	many := Record{Scope: "s", Suspects: map[Key]Entry{}}
	for i := range MaxSuspects + 1 {
		many.Suspects[Key(fmt.Sprint(i))] = Entry{Age: 1}
	}
	for _, text := range []string{
		"", "garbage", "[]", `{"scope":"s","suspects":{"k":"old"}}`, `{"scope":"another","suspects":{"k":{"age":9}}}`, many.Text(),
	} {
		if r := ParseRecord(text, "s"); len(r.Suspects) != 0 || r.Scope != "s" {
			t.Errorf("%.40s is %v", text, r)
		}
	}
	forged := ParseRecord(`{"scope":"s","suspects":{"a":{"age":-9},"b":{"age":9223372036854775807}}}`, "s").Aged(time.Hour)
	if a, b := forged.Suspects["a"], forged.Suspects["b"]; a.Age != 3600 || b.Age != maxAge || b.Duration() < 0 {
		t.Errorf("forged ages are %v and %v", a, b)
	}
	if got := ParseRecord(`{"scope":"s","suspects":{"a":{"age":9}}}`, "s").Aged(-time.Hour).Suspects["a"].Age; got != 9 {
		t.Errorf("a clock that went back results in the age %d", got)
	}
}

func TestDigestNamesASet(t *testing.T) {
	a, b, c := Suspect{Resource: vm("a", "1")}, Suspect{Resource: vm("b", "2")}, Suspect{Resource: vm("a", "3")}
	if Digest([]Suspect{a, b}) != Digest([]Suspect{b, a}) {
		t.Error("the order counts")
	}
	different := map[string]bool{}
	for _, set := range [][]Suspect{{a}, {b}, {c}, {a, b}, {a, b, c}} {
		different[Digest(set)] = true
	}
	if len(different) != 5 {
		t.Errorf("5 sets have %d digests", len(different))
	}
}

func TestConfirm(t *testing.T) {
	type machine struct {
		uid        types.UID
		id, class  string
		unreadable bool
	}
	old, approved := Entry{Age: 900}, Entry{Age: 900, Approved: true}
	same := &Machine{UID: "u", ProviderID: "own"}
	for _, tc := range []struct {
		name     string
		entry    Entry
		surplus  bool
		machines []machine
		byName   *Machine
		node     Node
		want     Decision
		why      string
	}{
		{name: "no Machine", entry: old, want: Delete, why: "suspected for 15m0s"},
		{
			name: "other Machines", entry: old, machines: []machine{{"x", "y", "c", false}}, want: Delete,
			why: "no Machine has its UID or provider ID",
		},
		{name: "too young", entry: Entry{Age: 899}, want: Wait, why: "less than 15m0s"},
		{name: "young and approved", entry: Entry{Age: 899, Approved: true}, want: Wait, why: "less than"},
		{name: "the Machine is back", entry: old, machines: []machine{{"u", "", "c", false}}, want: Wait, why: "its Machine exists"},
		{name: "the Machine is back, by its name", entry: old, byName: &Machine{UID: "u"}, want: Wait, why: "its Machine exists"},
		{
			name: "a Machine of its name is another one", entry: old, byName: &Machine{UID: "new", ProviderID: "other"}, want: Delete,
			why: "suspected",
		},
		{name: "a Machine of its name has the VM", entry: old, byName: &Machine{UID: "new", ProviderID: "v"}, want: Wait, why: "provider ID"},
		{name: "another Machine has the VM", entry: old, machines: []machine{{"x", "v", "c", false}}, want: Wait, why: "provider ID"},
		{name: "a Machine without its class", entry: old, machines: []machine{{"x", "y", "gone", false}}, want: Wait, why: "MachineClass"},
		{
			name: "a Machine without its class, and approved", entry: approved, machines: []machine{{"x", "y", "gone", false}}, want: Wait,
			why: "MachineClass",
		},
		{name: "a Machine whose VM is not known", entry: old, machines: []machine{{unreadable: true}}, want: Wait, why: "decoded"},
		{name: "its Node is not Ready", entry: old, node: NodeNotReady, want: Delete, why: "suspected"},
		{name: "its Node is Ready", entry: old, node: NodeReady, want: Hold, why: "Ready"},
		{name: "its Node is not known", entry: old, node: NodeUnknown, want: Hold, why: "know"},
		{name: "its Node is Ready, and approved", entry: approved, node: NodeReady, want: Delete, why: "suspected"},
		{name: "its cluster is not available", entry: old, node: NodeUnread, want: Hold, why: "the target cluster is not available (why)"},
		{name: "its cluster is not available, and approved", entry: approved, node: NodeUnread, want: Delete, why: "suspected"},
		{name: "its Node is not known, and approved", entry: approved, node: NodeUnknown, want: Delete, why: "suspected"},
		{
			name: "its Node is Ready, and its Machine is back", entry: approved, node: NodeReady, byName: &Machine{UID: "u"}, want: Wait,
			why: "exists",
		},
		{name: "surplus", entry: old, surplus: true, machines: []machine{{"u", "own", "c", false}}, byName: same, want: Delete, why: "suspected"},
		{name: "surplus, the Machine is gone", entry: old, surplus: true, want: Wait, why: "no more"},
		{
			name: "surplus, the Machine is gone by its name", entry: old, surplus: true, machines: []machine{{"u", "own", "c", false}}, want: Wait,
			why: "no more",
		},
		{
			name: "surplus, the Machine names no VM", entry: old, surplus: true, machines: []machine{{"u", "", "c", false}},
			byName: &Machine{UID: "u"}, want: Wait, why: "no VM",
		},
		{
			name: "surplus, the Machine names another VM than before", entry: old, surplus: true, machines: []machine{{"u", "before", "c", false}},
			byName: same, want: Wait, why: "another",
		},
		{
			name: "surplus, and the Machine's after all", entry: old, surplus: true, machines: []machine{{"u", "v", "c", false}},
			byName: &Machine{UID: "u", ProviderID: "v"}, want: Wait, why: "provider ID",
		},
	} {
		suspect := Suspect{Resource: vm("v", "u"), Surplus: tc.surplus}
		machines := NewMachines([]Suspect{suspect}, map[string]bool{"c": true})
		for _, m := range tc.machines {
			if m.unreadable {
				machines.AddUndecodable("m")
			} else {
				machines.Add("m", Machine{m.uid, m.id}, m.class)
			}
		}
		got := Confirm(Facts{
			Suspect: suspect, Entry: tc.entry, Age: 15 * time.Minute, Machines: machines, ByName: tc.byName, Node: tc.node, Unread: "why",
		})
		if got.Do != tc.want || !strings.Contains(got.Why, tc.why) {
			t.Errorf("%s: %+v, want %d because of %q", tc.name, got, tc.want, tc.why)
		}
	}
}

func TestLedger(t *testing.T) {
	suspects := func(from, to int) (of []Suspect) {
		for i := from; i < to; i++ {
			of = append(of, Suspect{Resource: vm(fmt.Sprint("v", i), types.UID(fmt.Sprint("u", i)))})
		}
		return of
	}
	reserve := func(l Ledger, namespace string, from, to int) Ledger {
		t.Helper()
		next, why := l.Reserve(namespace, suspects(from, to), 10)
		if why != "" {
			t.Fatalf("%d to %d: %s", from, to, why)
		}
		return next
	}
	refused := func(l Ledger, namespace string, from, to int, want string) {
		t.Helper()
		if next, why := l.Reserve(namespace, suspects(from, to), 10); !strings.Contains(why, want) || next.Text() != l.Text() {
			t.Errorf("%d to %d: %q, want %q and no change", from, to, why, want)
		}
	}
	l := reserve(Ledger{}, "n", 0, 6)
	refused(l, "n", 6, 11, "with these 5 there would be 11 deletions in this namespace within an hour; the limit is 10")
	refused(Ledger{}, "n", 0, 11, "these 11 there")
	l = reserve(l, "n", 0, 10) // the first 6 do not count twice
	if again := reserve(l.Aged(59*time.Minute), "n", 2, 8).Aged(59 * time.Minute); len(again.Reserved["n"]) != 6 {
		t.Errorf("%d reservations are left of 6 that were created again", len(again.Reserved["n"]))
	}
	refused(l.Aged(time.Hour-time.Second), "n", 10, 11, "these 1 there")
	reserve(l.Aged(time.Hour), "n", 10, 20)
	for i := range 9 {
		l = reserve(l, fmt.Sprint("n", i), 0, 10)
	}
	refused(l, "another", 0, 1, "101 deletions in the fleet within an hour; the limit is 100")
	reserve(l, "n", 0, 10)
	read, err := ParseLedger(l.Text())
	if err != nil || read.Text() != l.Text() {
		t.Errorf("%v: %s", err, read.Text())
	}
	refused(Ledger{}.With(l.Aged(time.Minute)), "n", 10, 11, "these 1 there")
	if with := l.Aged(time.Minute).With(l); with.Text() != l.Text() {
		t.Error("the older of two reservations counts")
	}
	if _, err := ParseLedger("garbage"); err == nil {
		t.Error("garbage is a Ledger")
	}
	if none, why := (Ledger{}).Reserve("n", suspects(0, 1), 0); why == "" || none.Has("n", suspects(0, 1)[0].Key()) {
		t.Error("the limit 0 allows a deletion")
	}
	full := Ledger{}
	for n := range FleetFactor {
		full, _ = full.Reserve(fmt.Sprint("namespace-with-a-long-name-", n), suspects(0, MaxLimit), MaxLimit)
	}
	if size := len(full.Aged(59 * time.Minute).Text()); size > 200<<10 {
		t.Errorf("a full Ledger has %d bytes", size)
	}
}
