package lifecycle

import (
	"slices"
	"strings"
	"testing"
)

// nodeCase is a world of which one check is asked alone.
type nodeCase struct {
	// given has lines as in the scenarios, which change a machine whose VM exists and which is
	// Pending.
	check, when, given string
	// want is the action; "" where the check must let the next one decide.
	want Action
}

var nodeCases = []nodeCase{
	{"joined", "the Node exists and its contents are unknown", "node: named", FindNode},
	{"joined", "the cache does not show the Node of a running machine", "machine: joined", FindNode},
	{"joined", "the cache does not show the Node of a machine that was created a moment ago", "token: absent", Rest},
	{"joined", "the Node does not exist", "node: absent; token: absent", Rest},
	{"joined", "the Node exists", "node: not ready", ""},
	{"owner known", "the Node has nothing that shows whose it is", "node: not proven", FindVM},
	{"owner known", "the Node is bound to the machine", "node: not ready", ""},
	{"own", "another VM has joined under the name", "node: of another VM", Rest},
	{"own", "the Node is bound to the machine", "node: not ready", ""},
	{"not deleted", "the Node is being deleted", "node: being deleted", DeleteMachine},
	{"not deleted", "the Node is not ready", "node: not ready", ""},
	{"claimed", "the Node has just joined", "node: not claimed", ClaimNode},
	{"claimed", "the Node is claimed", "node: not ready", ""},
	{"not given up", "the machine has failed and has a disruption", "node: ready; phase: Failed; disruption: allowed", Rest},
	{"not given up", "the machine has failed and has no disruption", "node: ready; phase: Failed", ""},
	{"not given up", "the machine has a disruption and runs", "machine: joined; node: ready; disruption: allowed", ""},
	{
		"not updated in place", "the agent has succeeded",
		"machine: joined; phase: InPlaceUpdating; node: ready, candidate, selected, updated, in stage ReadyForUpdate", Save,
	},
	{
		"not updated in place", "the agent has failed",
		"machine: joined; phase: InPlaceUpdating; node: ready, candidate, selected, not to be updated, in stage ReadyForUpdate", Save,
	},
	{"not updated in place", "the agent is at work", "machine: joined; phase: InPlaceUpdating; node: not ready", Rest},
	{"not updated in place", "no update has begun", "machine: joined; node: selected", ""},
	{
		"set up", "the machine has failed before it joined, and the VM is not set up",
		"last: Create Failed; phase: Failed; vm: uninitialized; node: ready", Rest,
	},
	{
		"set up", "the machine has failed before it joined, and the cloud was not asked", "last: Create Failed; phase: Failed; node: ready",
		FindVM,
	},
	{
		"set up", "the machine has failed before it joined, and the VM is set up", "last: Create Failed; phase: Failed; vm: present; node: ready",
		"",
	},
	{"set up", "the Node is not ready", "last: Create Failed; phase: Failed; vm: uninitialized; node: not ready", ""},
	{"set up", "the machine has not failed", "last: Create Processing; vm: uninitialized; node: ready", ""},
	{"token deleted", "the Node has become ready", "last: Create Processing; node: ready", DropToken},
	{"token deleted", "the token was deleted", "last: Create Processing; node: ready; token: absent", ""},
	{"token deleted", "the Node is not ready", "last: Create Processing; node: not ready", ""},
	{"token deleted", "the machine runs", "machine: joined; node: ready", ""},
	{"healthy", "the Node has become ready", "node: ready", Save},
	{"healthy", "the Node is ready, as before", "machine: joined; node: ready", Rest},
	{"healthy", "the Node is not ready", "machine: joined; node: not ready", ""},
	{"healthy", "the critical components are awaited", "node: awaits components", ""},
	{"unhealthy", "the Node of a running machine is not ready", "machine: joined; node: not ready", Rest},
	{"unhealthy", "the Node is ready", "machine: joined; node: ready", ""},
	{"unhealthy", "the machine has not joined", "node: not ready", ""},
}

// TestNodeChecks calls each check without the others.
func TestNodeChecks(t *testing.T) {
	for _, tc := range nodeCases {
		t.Run(tc.check+"/"+tc.when, func(t *testing.T) {
			i := slices.IndexFunc(nodeChecks, func(c nodeCheck) bool { return c.name == tc.check })
			if i < 0 {
				t.Fatalf("expected the name of a check, got %q", tc.check)
			}
			w := fresh(created)
			for line := range strings.SplitSeq(tc.given, "; ") {
				key, value, _ := strings.Cut(line, ": ")
				if err := facts[key](&w, value); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
			}
			v, decided := nodeChecks[i].decide(w)
			if decided != (tc.want != "") || decided && v.Do != tc.want {
				t.Errorf("expected action %q, got decided = %v and action %q", tc.want, decided, v.Do)
			}
		})
	}
}

// TestNodeChecksAllHaveCases fails for a check without a case in which it decides, or without one
// in which it does not.
func TestNodeChecksAllHaveCases(t *testing.T) {
	for _, check := range nodeChecks {
		for _, decides := range []bool{true, false} {
			if !slices.ContainsFunc(nodeCases, func(tc nodeCase) bool { return tc.check == check.name && (tc.want != "") == decides }) {
				t.Errorf("check %q has no case in which it decides = %v; add one to nodeCases", check.name, decides)
			}
		}
	}
}
