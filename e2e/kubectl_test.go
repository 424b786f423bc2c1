//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// TestKubectl: a Gardener control plane's objects are applied, kubectl get prints the columns of
// MCM with their values, and the Leases show which replica holds what.
func TestKubectl(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "kubectl", "")
	t.Run("apply", func(t *testing.T) { applyManifests(s.in(t)) })
	t.Run("get", func(t *testing.T) { getColumns(s.in(t)) })
	t.Run("get leases", func(t *testing.T) { getLeases(t, s.lab) })
}

// getColumns compares what kubectl prints of a pool of one machine with the columns of MCM.
func getColumns(s *space) {
	s.deploy("pool", 1)
	s.running("pool", 1)
	s.reports("pool", 1)
	machines, err := s.machines(s.Context(), "")
	s.must(err)
	m := machines[0]
	for _, test := range []struct{ args, head, row string }{
		{"mcd", "NAME READY DESIRED UP-TO-DATE AVAILABLE AGE", "pool 1 1 1 1"},
		{"mcs", "NAME DESIRED CURRENT READY AGE", s.set("pool").Name + " 1 1 1"},
		{"mc", "NAME STATUS AGE NODE", m.Name + " Running AGE " + m.Labels["node"]},
		{"mc -o wide", "NAME STATUS AGE NODE PROVIDERID", m.Name + " Running AGE " + m.Labels["node"] + " " + m.Spec.ProviderID},
		{"mcc", "NAME AGE", "simulated"},
	} {
		lines := strings.Split(strings.TrimSpace(s.kubectl(append([]string{"get"}, strings.Fields(test.args)...)...)), "\n")
		if len(lines) != 2 {
			s.Fatalf("kubectl get %s: want a head and one row, got %q", test.args, lines)
		}
		head, row := strings.Fields(lines[0]), strings.Fields(lines[1])
		if first := len(strings.Fields(test.head)); strings.HasSuffix(test.args, "wide") && len(head) > first && len(row) > first {
			head, row = head[:first], row[:first] // the fleet's own columns follow
		}
		for i, column := range head {
			if column == "AGE" && i < len(row) {
				row[i] = column // any value
			}
		}
		want := strings.Fields(test.row)
		if head[len(head)-1] == "AGE" {
			want = append(want, "AGE")
		}
		if diff := cmp.Diff(strings.Fields(test.head), head) + cmp.Diff(want, row); diff != "" {
			s.Errorf("kubectl get %s (-want +got):\n%s", test.args, diff)
		}
	}
	for command, want := range map[string]string{
		"get mcd/pool --subresource=scale -o jsonpath={.spec.replicas},{.status.replicas},{.status.selector}": "1,1,name=pool",
		"get mc --field-selector=spec.class.name=simulated -o name": "machine.machine.sapcloud.io/" +
			m.Name,
		"get mc --field-selector=spec.class.name=other -o name": "",
	} {
		if got := strings.TrimSpace(s.kubectl(strings.Fields(command)...)); got != want {
			s.Errorf("kubectl %s: want %q, got %q", command, want, got)
		}
	}
}

// getLeases runs the commands of docs/operations/fleet.md: sessions, the leader, and the holder of
// each slot.
func getLeases(t *testing.T, lab *harness.Lab) {
	t.Helper()
	if err := lab.WaitHeld(t.Context(), lab.SlotCount); err != nil {
		t.Fatal(err)
	}
	replicas, err := lab.Replicas(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// leases returns the columns NAME and HOLDER of each row.
	leases := func(args ...string) (rows [][2]string) {
		t.Helper()
		out, err := lab.Kubectl(t.Context(), append([]string{"-n", harness.FleetNamespace, "get", "leases"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(strings.TrimSpace(out), "\n") {
			fields := strings.Fields(line)
			if len(fields) != 3 || i == 0 && !slices.Equal(fields, []string{"NAME", "HOLDER", "AGE"}) {
				t.Fatalf("kubectl get leases %v: want the head NAME HOLDER AGE and rows like it, got line %q", args, line)
			}
			if i > 0 {
				rows = append(rows, [2]string{fields[0], fields[1]})
			}
		}
		return rows
	}
	var sessions []string
	for _, row := range leases("-l", v1alpha1.LabelLease+"="+v1alpha1.LeaseOfSession) {
		replica, _ := member.ReplicaOfLease(harness.FleetName, row[0])
		if of, _ := member.ReplicaOf(row[1]); of != replica || !slices.Contains(replicas, replica) {
			t.Errorf("session Lease %s shows holder %s, want a session of its replica, one of %v", row[0], row[1], replicas)
		}
		sessions = append(sessions, row[1])
	}
	if len(sessions) != len(replicas) {
		t.Errorf("sessions %v, want one for each of %v", sessions, replicas)
	}
	rows := leases("-l", v1alpha1.LabelLease+"="+v1alpha1.LeaseOfSlot)
	for i, row := range rows {
		if row[0] != slotLease(lab, i) || !slices.Contains(sessions, row[1]) {
			t.Errorf("row %d shows %s held by %s, want the slots in their order, and one of %v", i, row[0], row[1], sessions)
		}
	}
	if len(rows) != lab.SlotCount {
		t.Errorf("%d rows of slots, want %d", len(rows), lab.SlotCount)
	}
	if rows := leases(harness.FleetName + "-leader"); len(rows) != 1 || !slices.Contains(sessions, rows[0][1]) {
		t.Errorf("the leader Lease shows %v, want one of %v", rows, sessions)
	}
}

// applyManifests applies the objects of a Gardener control plane.
func applyManifests(s *space) {
	// The namespace is the one that the manifests name. It stays empty, and for the next run.
	if _, err := s.lab.Kubectl(s.Context(), "get", "namespace", "garden--blue"); err != nil {
		_, err := s.lab.Kubectl(s.Context(), "create", "namespace", "garden--blue")
		s.must(err)
	}
	out, err := s.lab.Kubectl(s.Context(), "apply", "--dry-run=server", "--validate=strict", "-f",
		"../apis/machine/v1alpha1/testdata/manifests.yaml")
	s.must(err)
	if got := strings.Count(out, "created (server dry run)"); got != 5 {
		s.Errorf("want 5 objects accepted, got:\n%s", out)
	}
}
