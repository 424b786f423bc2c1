package decide

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// TestNothingOfAMachineIsDeleted draws facts, and compares with what may be deleted in the words of
// the package comment.
func TestNothingOfAMachineIsDeleted(t *testing.T) {
	worlds.Check(t, 50, func(t *rapid.T) {
		names, classes := []types.UID{"u", "v", "w"}, []string{"c", "d", "gone"}
		s := Suspect{
			Resource: vm(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "id"), rapid.SampledFrom(names).Draw(t, "uid")),
			Surplus:  rapid.Bool().Draw(t, "surplus"),
		}
		draw := func(what string) Machine {
			return Machine{rapid.SampledFrom(names).Draw(t, what), rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, what+" id")}
		}
		machines, exists, has, allClasses := NewMachines([]Suspect{s}, map[string]bool{"c": true, "d": true}), false, false, true
		for range rapid.IntRange(0, 3).Draw(t, "machines") {
			m, class := draw("machine"), rapid.SampledFrom(classes).Draw(t, "class")
			machines.Add("m", m, class)
			exists, has, allClasses = exists || m.UID == s.MachineUID, has || m.ProviderID == s.ID, allClasses && class != "gone"
		}
		f := Facts{
			Suspect: s, Age: 10 * time.Second, Machines: machines,
			Node:  rapid.SampledFrom([]Node{NodeAbsent, NodeNotReady, NodeReady, NodeUnknown, NodeUnread}).Draw(t, "node"),
			Entry: Entry{Age: rapid.Int64Range(8, 12).Draw(t, "age"), Approved: rapid.Bool().Draw(t, "approved")},
		}
		if rapid.Bool().Draw(t, "by name") {
			m := draw("by name")
			f.ByName = &m
			has = has || m.ProviderID == s.ID
			exists = exists || m.UID == s.MachineUID
		}
		got := Confirm(f)
		safe := f.Entry.Age >= 10 && allClasses && !has && exists == s.Surplus
		if got.Do != Wait && !safe {
			t.Fatalf("%+v of %+v", got, f)
		}
		if safe && !s.Surplus && got.Do == Wait {
			t.Fatalf("an orphan stays: %+v of %+v", got, f)
		}
		if runsPods := f.Node == NodeReady || f.Node == NodeUnknown || f.Node == NodeUnread; got.Do == Delete && runsPods && !f.Entry.Approved {
			t.Fatalf("a Node that may run pods: %+v", got)
		}
	})
}
