package session

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// A step may resume a slot and stop it again. What it says last holds, or keys would be let in
// while the slot is given up.
func TestTheLastChangeOfASlotHasTheLastWord(t *testing.T) {
	for _, tc := range []struct {
		name    string
		changes []protocol.Change
		want    bool // the slot is stopped
	}{
		{"resumed and stopped", []protocol.Change{{Slot: 3, Kind: protocol.Resumed}, {Slot: 3, Kind: protocol.Stopped, Ticket: 9}}, true},
		{
			"acquired and stopped",
			[]protocol.Change{{Slot: 3, Epoch: 1, Kind: protocol.Acquired}, {Slot: 3, Epoch: 1, Kind: protocol.Stopped, Ticket: 9}},
			true,
		},
		{"stopped and resumed", []protocol.Change{{Slot: 3, Kind: protocol.Stopped, Ticket: 9}, {Slot: 3, Kind: protocol.Resumed}}, false},
		{"resumed and stopped, and then another slot", []protocol.Change{
			{Slot: 3, Kind: protocol.Resumed}, {Slot: 3, Kind: protocol.Stopped, Ticket: 9}, {Slot: 4, Kind: protocol.Resumed},
		}, true},
		{"another slot", []protocol.Change{{Slot: 3, Kind: protocol.Resumed}, {Slot: 4, Kind: protocol.Stopped, Ticket: 9}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			now, metrics := fence.NewTime(clock.RealClock{}), NewMetrics(registry)
			f := fence.New("fleet-0", "fleet-0_abcde", fleetSlots, now, registry, nil)
			r, err := New(complete(t, Config{Fence: f, Time: now, Metrics: metrics, Grants: instantGrants{}, Settings: protocol.Settings{
				Config: member.DefaultConfig(), Assignment: assignment.DefaultConfig(), Fleet: "fleet", Namespace: "fleet-system",
				Replica: "fleet-0", Session: "fleet-0_abcde", Capacity: 1, Slots: fleetSlots, ShardBy: string(assignment.ByDeployment),
				RingVersion: assignment.RingVersion,
			}}))
			if err != nil {
				t.Fatal(err)
			}
			r.carryOut(t.Context(), protocol.Output{Changes: tc.changes})
			select {
			case <-r.held:
				t.Error("a suspended session stands for election")
			default:
			}
			if got := f.Slot(3).Stopping; got != tc.want {
				t.Errorf("the slot is stopped: %t, want %t", got, tc.want)
			}
			answers := 0
			for _, l := range r.mail.receive() {
				switch idle, ok := l.event.(protocol.Idle); {
				case ok && idle.Ticket == 9:
					answers++
				case ok:
					t.Errorf("a change without a ticket was answered: %+v", idle)
				}
			}
			if answers != 1 {
				t.Errorf("the ticket was answered %d times", answers)
			}
		})
	}
}
