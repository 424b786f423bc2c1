package check

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// User-Agents of two sessions that hold slot 7 one after the other.
const (
	first  = "machine-controller-fleet/fleet-0 (session=fleet-0_aaaaa; slot=7; epoch=1)"
	second = "machine-controller-fleet/fleet-1 (session=fleet-1_bbbbb; slot=7; epoch=2)"
	// intruder acts under the epoch of the first.
	intruder = "machine-controller-fleet/fleet-2 (session=fleet-2_ccccc; slot=7; epoch=1)"
)

func create(id uint64, caller, machine string, changed bool, end int) cloudapi.Call {
	return cloudapi.Call{
		ID: id, Caller: caller, Operation: cloudapi.OpCreateInstance, Machine: machine, Token: "uid-of-" + machine,
		Instance: "i-" + machine, Changed: changed, Start: at(end - 1), End: at(end), Status: 200,
	}
}

func remove(id uint64, caller, machine string, changed bool, end int) cloudapi.Call {
	call := create(id, caller, machine, changed, end)
	call.Operation, call.Token, call.MachineUID = cloudapi.OpDeleteInstance, "", "uid-of-"+machine
	return call
}

func setUp(id uint64, caller, machine string, changed bool, end int) cloudapi.Call {
	call := remove(id, caller, machine, changed, end)
	call.Operation = cloudapi.OpModifyInstance
	return call
}

func write(caller, verb string, code, second int) Write {
	return Write{At: at(second), Caller: caller, Verb: verb, Code: code, Object: Object{Resource: "machines", Namespace: "n", Name: "m"}}
}

func writeNode(caller string, code, second int, patch string) Write {
	return Write{
		At: at(second), Caller: caller, Verb: "patch", Code: code, Object: Object{Resource: "nodes", Name: "m"}, Body: json.RawMessage(patch),
	}
}

// evict is an eviction of a pod, by the subresource eviction, or by a delete.
func evict(caller string, code, second int) Write {
	return Write{At: at(second), Caller: caller, Verb: "create", Subresource: "eviction", Code: code, Object: Object{
		Resource: "pods", Namespace: "n", Name: "p",
	}}
}

func writeToken(caller, verb string, code, second int) Write {
	return Write{At: at(second), Caller: caller, Verb: verb, Code: code, Object: Object{
		Resource: "secrets", Namespace: "kube-system", Name: "bootstrap-token-abcdef",
	}}
}

func count(second, desired, surge, machines int) Count {
	return Count{At: at(second), Deployment: "n/d", Desired: desired, Surge: surge, Machines: machines}
}

// For each history with a fault there is a similar one without.
func TestCheck(t *testing.T) {
	const (
		claim                 = `{"metadata":{"uid":"u","finalizers":["f"],"labels":{"slot":"7"}}}`
		claimOfAnotherVersion = `{"metadata":{"uid":"u","resourceVersion":"9","finalizers":["f"]}}`
		released              = `{"metadata":{"uid":"u","$deleteFromPrimitiveList/finalizers":["f"]}}`
		cordon                = `{"metadata":{"uid":"u"},"spec":{"unschedulable":true}}`
		uncordon              = `{"metadata":{"uid":"u"},"spec":{"unschedulable":null}}`
	)
	for _, tc := range []struct {
		name    string
		history History
		faults  []string // a part of each
		late    int      // calls and writes
	}{
		{name: "nothing"},
		{name: "a life under two epochs", history: History{
			Calls:  []cloudapi.Call{create(1, first, "m", true, 1), remove(2, second, "m", true, 9)},
			Writes: []Write{write(first, "patch", 200, 2), write(second, "delete", 200, 8)},
		}},
		{name: "the same create again, without effect", history: History{
			Calls: []cloudapi.Call{create(1, first, "m", true, 1), create(2, second, "m", false, 2)},
		}},
		{name: "a late create without effect", late: 1, history: History{
			Calls: []cloudapi.Call{create(1, second, "m", true, 1), create(2, first, "m", false, 2)},
		}},
		{
			name:   "a second VM",
			faults: []string{"call 2, CreateInstance of m, is the second VM of machine uid-of-m, after call 1"},
			history: History{
				Calls: []cloudapi.Call{create(1, first, "m", true, 1), create(2, second, "m", true, 2)},
			},
		},
		{name: "a line that was logged twice", history: History{
			Calls: []cloudapi.Call{create(1, first, "m", true, 1), create(1, first, "m", true, 1)},
		}},
		{name: "a VM deleted twice", faults: []string{"deleted VM i-m a second time"}, history: History{
			Calls: []cloudapi.Call{remove(1, first, "m", true, 1), remove(2, second, "m", true, 2)},
		}},
		{name: "a VM set up, and again without effect", history: History{
			Calls: []cloudapi.Call{
				create(1, first, "m", true, 1), setUp(2, first, "m", true, 2), setUp(3, second, "m", false, 3), remove(4, second, "m", true, 4),
			},
		}},
		{
			name:   "a VM set up twice",
			faults: []string{"call 2, ModifyInstance of m, has set up VM i-m a second time, after call 1"},
			history: History{
				Calls: []cloudapi.Call{setUp(1, first, "m", true, 1), setUp(2, second, "m", true, 2)},
			},
		},
		{
			name:   "a VM set up past the fence",
			faults: []string{"call 1, ModifyInstance of m, by \"curl\", which names no ownership"},
			history: History{
				Calls: []cloudapi.Call{setUp(1, "curl", "m", true, 1)},
			},
		},
		{name: "two VMs set up", history: History{
			Calls: []cloudapi.Call{setUp(1, first, "m", true, 1), setUp(2, first, "n", true, 2)},
		}},
		{name: "a VM deleted with its Machine", history: History{
			Calls: []cloudapi.Call{remove(1, first, "m", true, 9)}, Endings: []Ending{{At: at(12), MachineUID: "uid-of-m"}},
		}},
		{
			name:   "a VM lost",
			faults: []string{"call 1, DeleteInstance of m, has deleted the VM of a Machine that was not deleted"},
			history: History{
				Calls: []cloudapi.Call{remove(1, first, "m", true, 9)}, Endings: []Ending{},
			},
		},
		{name: "a VM that the test has created", history: History{
			Calls: []cloudapi.Call{create(1, "curl", "m", true, 1), remove(2, first, "m", true, 9)}, Endings: []Ending{},
			Orphans: []string{"uid-of-m"},
		}},
		{
			name:   "a VM that another client has created",
			faults: []string{"call 1, CreateInstance of m, by \"curl\", which names no ownership"},
			history: History{
				Calls: []cloudapi.Call{create(1, "curl", "m", true, 1), create(2, "curl", "o", true, 1)}, Orphans: []string{"uid-of-o"},
			},
		},
		{name: "a VM lost before its Machine was deleted", faults: []string{"that was not deleted"}, history: History{
			Calls: []cloudapi.Call{remove(1, first, "m", true, 9)}, Endings: []Ending{{At: at(60), MachineUID: "uid-of-m"}},
		}},
		{name: "a VM deleted while there were no watches", history: History{
			Calls: []cloudapi.Call{remove(1, first, "m", true, 9)}, Endings: []Ending{{At: at(60), MachineUID: "uid-of-m"}},
			Outages: []Outage{{From: at(5), To: at(70)}},
		}},
		{name: "a VM lost after an outage", faults: []string{"that was not deleted"}, history: History{
			Calls: []cloudapi.Call{remove(1, first, "m", true, 80)}, Endings: []Ending{}, Outages: []Outage{{From: at(5), To: at(70)}},
		}},
		{name: "a VM lost before an outage", faults: []string{"that was not deleted"}, history: History{
			Calls: []cloudapi.Call{remove(1, first, "m", true, 4)}, Endings: []Ending{{At: at(60), MachineUID: "uid-of-m"}},
			Outages: []Outage{{From: at(5), To: at(70)}},
		}},
		{name: "a call past the fence", faults: []string{"names no ownership"}, history: History{
			Calls: []cloudapi.Call{create(1, "machine-controller-fleet/fleet-0 (session=fleet-0_aaaaa)", "m", true, 1)},
		}},
		{name: "a write past the fence", faults: []string{"names no ownership"}, history: History{
			Writes: []Write{write("machine-controller-fleet/fleet-0", "patch", 200, 1)},
		}},
		{name: "a late write that is refused", late: 1, history: History{
			Writes: []Write{write(second, "patch", 200, 1), write(first, "patch", 409, 2)},
		}},
		{
			name:   "a late write that goes through",
			faults: []string{"session fleet-0_aaaaa, epoch 1, went through after session fleet-1_bbbbb had begun with epoch 2"},
			history: History{
				Writes: []Write{write(second, "patch", 200, 1), write(first, "patch", 200, 2)},
			},
		},
		{name: "a late write of a Node, with its own earlier content", late: 1, history: History{
			Writes: []Write{writeNode(first, 200, 1, claim), writeNode(second, 200, 2, cordon), writeNode(first, 200, 3, claim)},
		}},
		{name: "a late write of a Node, with the content of the later one", late: 1, history: History{
			Writes: []Write{writeNode(second, 200, 1, claim), writeNode(first, 200, 2, claimOfAnotherVersion)},
		}},
		{name: "a late write of a Node that is refused", late: 1, history: History{
			Writes: []Write{writeNode(second, 200, 1, claim), writeNode(first, 409, 2, cordon)},
		}},
		{name: "a late write of a Node with unknown content", late: 1, history: History{
			Writes: []Write{writeNode(second, 200, 1, claim), writeNode(first, 200, 2, "")},
		}},
		{
			name:   "a late write of a Node with new content",
			faults: []string{"session fleet-0_aaaaa, epoch 1, went through after"},
			history: History{
				Writes: []Write{writeNode(second, 200, 1, claim), writeNode(first, 200, 2, cordon)},
			},
		},
		{name: "a late write of a Node that brings back what the later one has changed", faults: []string{"went through after"}, history: History{
			Writes: []Write{writeNode(first, 200, 1, cordon), writeNode(second, 200, 2, uncordon), writeNode(first, 200, 3, cordon)},
		}},
		{name: "a late write of a Node that brings its finalizer back", faults: []string{"went through after"}, history: History{
			Writes: []Write{writeNode(first, 200, 1, claim), writeNode(second, 200, 2, released), writeNode(first, 200, 3, claim)},
		}},
		{name: "a late eviction of a pod that was evicted", late: 1, history: History{
			Writes: []Write{evict(second, 201, 1), evict(first, 201, 2)},
		}},
		{name: "a late eviction of a pod that the later one was refused", faults: []string{"create of pods n/p"}, history: History{
			Writes: []Write{evict(second, 429, 1), evict(first, 201, 2)},
		}},
		{name: "a late token that is there already", late: 1, history: History{
			Writes: []Write{writeToken(second, "create", 201, 1), writeToken(first, "create", 409, 2)},
		}},
		{name: "a late token that was removed", faults: []string{"create of secrets kube-system/bootstrap-token-abcdef"}, history: History{
			Writes: []Write{writeToken(second, "create", 201, 1), writeToken(second, "delete", 200, 2), writeToken(first, "create", 201, 3)},
		}},
		{name: "a token that a late delete takes away", faults: []string{"delete of secrets"}, history: History{
			Writes: []Write{writeToken(second, "create", 201, 1), writeToken(first, "delete", 200, 2)},
		}},
		{name: "a late delete of a token that is gone", late: 1, history: History{
			Writes: []Write{writeToken(second, "delete", 200, 1), writeToken(first, "delete", 404, 2)},
		}},
		{
			name:   "an epoch of two sessions",
			faults: []string{"by session fleet-2_ccccc under epoch 1 of slot 7, which is that of session fleet-0_aaaaa"},
			history: History{
				Writes: []Write{write(first, "patch", 200, 1), write(intruder, "patch", 409, 2)},
			},
		},
		{
			name:   "an epoch of two sessions, at the cloud and at the API server",
			faults: []string{"which is that of session fleet-2_ccccc"},
			history: History{
				Calls:  []cloudapi.Call{create(1, intruder, "m", true, 9)},
				Writes: []Write{write(first, "patch", 200, 1)},
			},
		},
		{name: "an epoch of two sessions, which has begun anew", history: History{
			Writes: []Write{write(first, "patch", 200, 1), write(intruder, "patch", 200, 3)},
			Resets: []Reset{{From: at(2), To: at(2), Slot: 7}},
		}},
		{name: "epochs that begin anew", history: History{
			Writes: []Write{write(second, "patch", 200, 1), write(first, "patch", 200, 3)},
			Resets: []Reset{{From: at(2), To: at(2), Slot: 7}},
		}},
		{name: "epochs that begin anew while a holder has not observed it", history: History{
			Writes: []Write{write(second, "patch", 200, 3), write(first, "patch", 200, 20)},
			Resets: []Reset{{From: at(2), To: at(4), Slot: 7}},
		}},
		{name: "epochs of all slots that begin anew", history: History{
			Writes: []Write{write(second, "patch", 200, 1), write(first, "patch", 200, 20)},
			Resets: []Reset{{From: at(2), To: at(4), Slot: -1}},
		}},
		{name: "epochs that began anew before", faults: []string{"went through"}, history: History{
			Writes: []Write{write(second, "patch", 200, 5), write(first, "patch", 200, 6)},
			Resets: []Reset{{From: at(2), To: at(4), Slot: -1}},
		}},
		{name: "epochs of another slot that begin anew", faults: []string{"went through"}, history: History{
			Writes: []Write{write(second, "patch", 200, 1), write(first, "patch", 200, 3)},
			Resets: []Reset{{From: at(2), To: at(2), Slot: 8}},
		}},
		{name: "scaled down, not there yet", history: History{Counts: []Count{count(1, 5, 0, 5), count(2, 2, 0, 5), count(3, 2, 0, 2)}}},
		{name: "one machine too many", faults: []string{"had 6 machines", "had 3 machines"}, history: History{
			Counts: []Count{count(1, 5, 0, 5), count(2, 5, 0, 6), count(3, 2, 0, 2), count(4, 2, 0, 3)},
		}},
		{name: "within the surge", history: History{Counts: []Count{count(1, 5, 1, 5), count(2, 5, 1, 6)}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			report := Check(tc.history)
			if len(report.Faults) != len(tc.faults) {
				t.Fatalf("faults %q, want %d", report.Faults, len(tc.faults))
			}
			for i, want := range tc.faults {
				if !strings.Contains(report.Faults[i], want) {
					t.Errorf("fault %q, want it to contain %q", report.Faults[i], want)
				}
			}
			if late := report.LateCalls + report.LateWrites; late != tc.late {
				t.Errorf("%d late, want %d", late, tc.late)
			}
		})
	}
}

func TestParseActor(t *testing.T) {
	for _, tc := range []struct {
		text  string
		want  Actor
		known bool
	}{
		{first, Actor{Replica: "fleet-0", Session: "fleet-0_aaaaa", Slot: 7, Epoch: 1}, true},
		{
			"machine-controller-fleet/fleet-0 (session=fleet-0_aaaaa; leader)",
			Actor{Replica: "fleet-0", Session: "fleet-0_aaaaa", Slot: -1, Leader: true},
			true,
		},
		{"machine-controller-fleet/fleet-0 (session=fleet-0_aaaaa)", Actor{Replica: "fleet-0", Session: "fleet-0_aaaaa", Slot: -1}, true},
		{"kubectl/v1.37.1 (linux/amd64)", Actor{}, false},
		{"", Actor{}, false},
	} {
		got, known := ParseActor(tc.text)
		if diff := cmp.Diff(tc.want, got); diff != "" || known != tc.known {
			t.Errorf("%q: known %t, -want +got:\n%s", tc.text, known, diff)
		}
	}
}

// TestPatchedFields: the fields that a patch sets or removes, without the preconditions.
func TestPatchedFields(t *testing.T) {
	for patch, want := range map[string]map[string]string{
		`{}`: {},
		`{"metadata":{"uid":"u","resourceVersion":"1","labels":{"a":"b","c":null}}}`: {"/metadata/labels/a": `"b"`, "/metadata/labels/c": "null"},
		`{"metadata":{"finalizers":["a"],"$deleteFromPrimitiveList/finalizers":["b"]}}`: {
			"/metadata/finalizers[a]": `"a"`, "/metadata/finalizers[b]": "null",
		},
		`{"status":{"$setElementOrder/conditions":[{"type":"A"}],"conditions":[{"type":"A","status":"True"},{"type":"B","$patch":"delete"}]}}`: {
			"/status/conditions[A]": `{"status":"True","type":"A"}`, "/status/conditions[B]": "null",
		},
		`{"spec":{"unschedulable":true,"taints":[{"key":"k","effect":"NoSchedule"}]}}`: {
			"/spec/unschedulable": "true", "/spec/taints[k]": `{"effect":"NoSchedule","key":"k"}`,
		},
		`[1]`: {"": "[1]"},
	} {
		if diff := cmp.Diff(want, patchedFields(json.RawMessage(patch))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", patch, diff)
		}
	}
}
