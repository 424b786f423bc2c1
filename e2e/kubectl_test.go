//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestKubectlGet prints the columns that users of MCM know, with what is in them.
func TestKubectlGet(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "kubectl", "")
	s.deploy("pool", 1)
	s.running("pool", 1)
	s.reports("pool", 1)
	machines, err := s.machines(t.Context(), "")
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
			t.Fatalf("kubectl get %s: want a head and one row, got %q", test.args, lines)
		}
		head, row := strings.Fields(lines[0]), strings.Fields(lines[1])
		for i, column := range head {
			if column == "AGE" && i < len(row) {
				row[i] = column // whatever it is
			}
		}
		want := strings.Fields(test.row)
		if head[len(head)-1] == "AGE" {
			want = append(want, "AGE")
		}
		if diff := cmp.Diff(strings.Fields(test.head), head) + cmp.Diff(want, row); diff != "" {
			t.Errorf("kubectl get %s (-want +got):\n%s", test.args, diff)
		}
	}
}

// TestKubectlApply has kubectl send the objects of a Gardener control plane.
func TestKubectlApply(t *testing.T) {
	t.Parallel()
	lab := shared(t)
	// The namespace is the one that the manifests name. It stays empty, and for the next run.
	if _, err := lab.Kubectl(t.Context(), "get", "namespace", "garden--blue"); err != nil {
		if _, err := lab.Kubectl(t.Context(), "create", "namespace", "garden--blue"); err != nil {
			t.Fatal(err)
		}
	}
	out, err := lab.Kubectl(t.Context(), "apply", "--dry-run=server", "--validate=strict", "-f", "../apis/machine/v1alpha1/testdata/manifests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out, "created (server dry run)"); got != 5 {
		t.Errorf("want 5 objects accepted, got:\n%s", out)
	}
}
