package lifecycle

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/journal"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestDecide(t *testing.T) {
	known := Target{IsKnown: true, Digest: "b's", NeedsDrain: true}
	quick := Target{IsKnown: true, Digest: "b's"}
	failure := func(attempts int, bootID string) *journal.Failure {
		return &journal.Failure{ConfigDigest: "b's", Attempts: attempts, Reason: "was unhealthy", BootID: bootID}
	}
	open := Open{From: "a", Config: "b", NeedsReboot: true, IsActedOn: true, Since: now.Add(-time.Minute)}
	booted := open
	booted.IsBooted, booted.IsActedOn = true, false
	restarted := Open{From: "a", Config: "b", Since: now}
	acted := restarted
	acted.IsActedOn = true
	failed := acted
	failed.Failed = "restart has failed"
	unacted := open
	unacted.IsActedOn = false
	drained := func(w World) World {
		w.Drain, w.Drained = "drain-b", "drain-b"
		return w
	}
	for _, tc := range []struct {
		name   string
		world  World
		do     Do
		state  v1alpha1.NodeState
		reason string
		drain  string
		after  time.Duration
	}{
		{name: "there is no configuration", do: Rest, state: v1alpha1.StateDone},
		{name: "up to date", world: World{Current: "a", Desired: "a"}, do: Rest, state: v1alpha1.StateDone},
		{name: "nothing is desired", world: World{Current: "a"}, do: Rest, state: v1alpha1.StateDone},
		{
			name: "up to date after a drain", world: World{Current: "a", Desired: "a", Drain: "drain-a", Drained: "drain-a"}, do: Rest,
			state: v1alpha1.StateWorking, reason: "uncordoned", drain: "uncordon-a",
		},
		{name: "the desired one has become the current one while its drain was requested", world: World{
			Current: "a", Desired: "a", Drain: "drain-b",
		}, do: Rest, state: v1alpha1.StateWorking, reason: "uncordoned", drain: "uncordon-a"},
		{
			name: "not uncordoned yet", world: World{Current: "a", Desired: "a", Drain: "uncordon-a", Drained: "drain-a"}, do: Rest,
			state: v1alpha1.StateWorking, reason: "uncordoned", drain: "uncordon-a",
		},
		{
			name: "uncordoned", world: World{Current: "a", Desired: "a", Drain: "uncordon-a", Drained: "uncordon-a"}, do: Rest,
			state: v1alpha1.StateDone, drain: "uncordon-a",
		},

		{
			name: "drift", world: World{Current: "a", Desired: "a", Drift: []string{"/f: x"}}, do: Rest, state: v1alpha1.StateDegraded,
			reason: "1 differ: /f: x",
		},
		{
			name: "drift is repaired", world: World{Current: "a", Desired: "a", Drift: []string{"/f: x"}, RepairsDrift: true}, do: Repair,
			state: v1alpha1.StateDegraded,
		},
		{name: "drift again and again", world: World{
			Current: "a", Desired: "a", Drift: []string{"/f: x"}, RepairsDrift: true, Repairs: []time.Time{now, now, now},
		}, do: Rest, state: v1alpha1.StateDegraded, reason: "another program"},
		{name: "drift was repaired long ago", world: World{
			Current: "a", Desired: "a", Drift: []string{"/f: x"}, RepairsDrift: true, Repairs: []time.Time{now.Add(-2 * time.Hour), now, now},
		}, do: Repair, state: v1alpha1.StateDegraded},
		{name: "a repair has failed", world: World{
			Current: "a", Desired: "a", Drift: []string{"/f: x"}, RepairsDrift: true, Failed: "no space", Retry: now.Add(time.Second),
		}, do: Rest, state: v1alpha1.StateDegraded, reason: "no space", after: time.Second},

		{name: "another one is desired", world: World{Current: "a", Desired: "b"}, do: Fetch, state: v1alpha1.StateWorking},
		{name: "it cannot be read", world: World{
			Current: "a", Desired: "b", Target: Target{Missing: "not found"}, Failed: "not found", Retry: now.Add(time.Second),
		}, do: Rest, state: v1alpha1.StateDegraded, reason: "not found", after: time.Second},
		{name: "it is read again", world: World{
			Current: "a", Desired: "b", Target: Target{Missing: "not found"}, Failed: "not found", Retry: now,
		}, do: Fetch, state: v1alpha1.StateDegraded, reason: "not found"},
		{name: "it is refused", world: World{Current: "a", Desired: "b", DrainsNode: true, Target: Target{
			IsKnown: true, NeedsDrain: true, Refused: []plan.Refusal{{Field: "fips", Message: "no"}, {Field: "x", Message: "y"}},
		}}, do: Rest, state: v1alpha1.StateUnreconcilable, reason: "fips: no; x: y"},
		{
			name: "a drain is requested", world: World{Current: "a", Desired: "b", DrainsNode: true, Target: known}, do: Rest,
			state: v1alpha1.StateWorking, reason: "drained", drain: "drain-b", after: time.Hour,
		},
		{name: "drained for another one", world: World{
			Current: "a", Desired: "b", DrainsNode: true, Target: known, Drain: "drain-c", Drained: "drain-c",
		}, do: Rest, state: v1alpha1.StateWorking, drain: "drain-b", after: time.Hour},
		{
			name: "an old answer", world: World{Current: "a", Desired: "b", DrainsNode: true, Target: known, Drained: "drain-b"}, do: Rest,
			state: v1alpha1.StateWorking, drain: "drain-b", after: time.Hour,
		},
		{name: "the drain takes long", world: World{
			Current: "a", Desired: "b", DrainsNode: true, Target: Target{IsKnown: true, NeedsDrain: true, DrainSince: now.Add(-time.Hour)},
		}, do: Rest, state: v1alpha1.StateDegraded, reason: "not drained", drain: "drain-b"},
		{
			name: "drained", world: drained(World{Current: "a", Desired: "b", DrainsNode: true, Target: known}), do: Apply,
			state: v1alpha1.StateWorking, drain: "drain-b",
		},
		{
			name: "no drain without a reboot", world: World{Current: "a", Desired: "b", DrainsNode: true, Target: quick}, do: Apply,
			state: v1alpha1.StateWorking,
		},
		{name: "no drain without a controller", world: World{Current: "a", Desired: "b", Target: known}, do: Apply, state: v1alpha1.StateWorking},
		{
			name: "applying has failed", world: World{Current: "a", Desired: "b", Target: quick, Failed: "no space", Retry: now.Add(time.Minute)},
			do: Rest, state: v1alpha1.StateDegraded, reason: "no space", after: time.Minute,
		},
		{
			name: "applying again stays degraded", world: World{Current: "a", Desired: "b", Target: quick, Failed: "no space", Retry: now},
			do: Apply, state: v1alpha1.StateDegraded, reason: "no space",
		},
		{
			name: "undone once", world: World{Current: "a", Desired: "b", Target: quick, Failure: failure(1, "")}, do: Apply,
			state: v1alpha1.StateDegraded, reason: "was unhealthy",
		},
		{
			name: "undone twice", world: World{Current: "a", Desired: "b", Target: quick, Failure: failure(2, "")}, do: Rest,
			state: v1alpha1.StateDegraded, reason: "not tried again",
		},
		{name: "another one after that", world: World{
			Current: "a", Desired: "c", Target: Target{IsKnown: true, Digest: "c's"}, Failure: failure(2, ""),
		}, do: Apply, state: v1alpha1.StateWorking},
		{
			name: "the current one after that", world: World{Current: "a", Desired: "a", Failure: failure(2, "")}, do: Rest,
			state: v1alpha1.StateDone,
		},
		{
			name: "undone in this boot", world: World{Current: "a", Desired: "b", BootID: "2", Failure: failure(1, "2")}, do: Reboot,
			state: v1alpha1.StateDegraded, reason: "was unhealthy",
		},
		{
			name: "undone in an earlier boot", world: World{Current: "a", Desired: "b", BootID: "3", Target: quick, Failure: failure(1, "2")},
			do: Apply, state: v1alpha1.StateDegraded,
		},

		{name: "hooks before the reboot", world: World{Current: "b", Desired: "b", Open: &unacted}, do: Act, state: v1alpha1.StateWorking},
		{name: "reboot", world: World{Current: "b", Desired: "b", Open: &open}, do: Reboot, state: v1alpha1.StateWorking, reason: "rebooting"},
		{
			name: "rebooting", world: World{Current: "b", Desired: "b", Open: &open, RebootSince: now.Add(-time.Minute)}, do: Rest,
			state: v1alpha1.StateWorking, after: 9 * time.Minute,
		},
		{
			name: "reboot once more", world: World{Current: "b", Desired: "b", Open: &open, RebootSince: now.Add(-10 * time.Minute)}, do: Reboot,
			state: v1alpha1.StateWorking,
		},
		{
			name: "a reboot cannot be requested", world: World{Current: "b", Desired: "b", Open: &open, Failed: "no", Retry: now.Add(time.Second)},
			do: Rest, state: v1alpha1.StateDegraded, after: time.Second,
		},
		{name: "booted", world: World{Current: "b", Desired: "b", Open: &booted}, do: Finish, state: v1alpha1.StateWorking},
		{
			name: "booted, and a file differs", world: World{Current: "b", Desired: "b", Open: &booted, Drift: []string{"/f: x"}}, do: Undo,
			state: v1alpha1.StateWorking,
		},
		{name: "booted, and not healthy yet", world: World{
			Current: "b", Desired: "b", Open: &booted, Unhealthy: "refused", HealthWithin: time.Hour,
		}, do: Rest, state: v1alpha1.StateWorking, reason: "refused", after: healthInterval},
		{name: "booted, and not healthy for long", world: World{
			Current: "b", Desired: "b", Open: &booted, Unhealthy: "refused", HealthWithin: time.Minute,
		}, do: Undo, state: v1alpha1.StateWorking},
		{name: "booted, not healthy, and another one is desired", world: World{
			Current: "b", Desired: "a", Open: &booted, Unhealthy: "refused", HealthWithin: time.Hour,
		}, do: Finish, state: v1alpha1.StateWorking},
		{
			name: "booted a second time after a failure", world: World{Current: "b", Desired: "b", Open: &booted, Failure: failure(1, "")},
			do: Finish, state: v1alpha1.StateDegraded,
		},
		{name: "commands", world: World{Current: "b", Desired: "b", Open: &restarted}, do: Act, state: v1alpha1.StateWorking},
		{name: "commands were run", world: World{Current: "b", Desired: "b", Open: &acted}, do: Finish, state: v1alpha1.StateWorking},
		{name: "a command has failed", world: World{Current: "b", Desired: "b", Open: &failed}, do: Undo, state: v1alpha1.StateWorking},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.world.Now = now
			v := Decide(tc.world)
			if v.Do != tc.do || v.Report.State != tc.state || !strings.Contains(v.Report.Reason, tc.reason) || v.After != tc.after {
				t.Errorf("got %+v", v)
			}
			if want := tc.drain; want != "" && v.Report.Drain != want || want == "" && v.Report.Drain != tc.world.Drain {
				t.Errorf("drain: got %q, want %q", v.Report.Drain, want)
			}
			current := tc.world.Current
			if tc.world.Open != nil {
				current = tc.world.Open.From
			}
			if v.Report.Current != current {
				t.Errorf("current: got %q, want %q: a configuration is reported when it is proven", v.Report.Current, current)
			}
			if v.Do == Undo && v.Reason == "" || v.Report.State == v1alpha1.StateDegraded && v.Report.Reason == "" {
				t.Errorf("expected a reason: %+v", v)
			}
		})
	}
}

func TestReasonIsBounded(t *testing.T) {
	drift := slices.Repeat([]string{"/" + strings.Repeat("ü", 100)}, 100)
	if got := Decide(World{Current: "a", Desired: "a", Drift: drift}).Report.Reason; len(got) > maxReason || len(got) < maxReason/2 {
		t.Errorf("%d bytes", len(got))
	}
}
