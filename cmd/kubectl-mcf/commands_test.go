package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/golden"
)

// TestReadsAreShown runs each verb that reads.
func TestReadsAreShown(t *testing.T) {
	s := cluster(t)
	var b strings.Builder
	for _, args := range [][]string{
		{"tree"},
		{"tree", "spot"},
		{"tree", "nothing"},
		{"tree", "-o", "name"},
		{"tree", "spot", "-o", "yaml"},
		{"tree", "-o", "table"},
		{"status"},
		{"status", "--fleet-name=other", "--no-target"},
		{"rollout", "status", "idle"},
		{"rollout", "status", "workers", "--watch=false"},
		{"rollout", "status", "mcd/workers", "--timeout=3s"},
		{"rollout", "status", "mc/workers"},
		{"rollout", "status", "nothing"},
		{"rollout", "history", "workers"},
		{"rollout", "history", "workers", "--revision=1"},
		{"rollout", "history", "workers", "--revision=7"},
		{"why", "workers-b-pqrst"},
		{"why", "workers-a-tvwxz"},
		{"why", "mc/spot-a-bbbbb"},
		{"why", "workers-a-npqrs"},
		{"why", "workers-a-old12"},
		{"why", "nothing"},
		{"why", "nothing", "--receipts=testdata/deletions.jsonl"},
		{"owners"},
		{"owners", "nothing"},
		{"slots"},
		{"slots", "-o", "wide"},
		{"slots", "5", "7"},
		{"slots", "8"},
		{"slots", "--fleet-namespace=elsewhere"},
		{"drain", "workers-a-tvwxz"},
		{"drain", "workers-a-hjklm", "-o", "wide"},
		{"drain", "nothing"},
		{"targets"},
		{"version", "--client", "-o", "json"},
	} {
		b.WriteString(transcript(t, s, args...))
	}
	golden.Compare(t, "testdata/reads.txt", b.String())
	if n := s.Writes(); n > 0 {
		t.Errorf("%d writes: %q", n, s.Log())
	}
}

// TestWritesAreSent runs each verb that writes, with the requests that it sends.
func TestWritesAreSent(t *testing.T) {
	var b strings.Builder
	for _, args := range [][]string{
		{"rollout", "undo", "workers"},
		{"rollout", "undo", "workers", "--to-revision=1", "--dry-run=client"},
		{"rollout", "undo", "workers", "--to-revision=2"},
		{"rollout", "undo", "workers", "--to-revision=9"},
		{"rollout", "undo", "spot"},
		{"rollout", "undo", "workers", "--dry-run=maybe"},
		{"rollout", "pause", "workers"},
		{"rollout", "pause", "spot"},
		{"rollout", "resume", "spot"},
		{"rollout", "restart", "workers"},
		{"rollout", "restart", "spot"},
		{"preserve", "workers-a-npqrs", "--for=4h"},
		{"preserve", "workers-a-bcdfg"},
		{"preserve", "workers-a-bcdfg", "--when-failed"},
		{"preserve", "workers-a-tvwxz"},
		{"preserve", "workers-a-bcdfg", "--for=1h", "--when-failed"},
		{"unpreserve", "workers-a-npqrs"},
		{"unpreserve", "workers-a-bcdfg"},
		{"hold"},
		{"hold", "--reason=incident 8"},
		{"hold", "-A", "--reason=incident 8"},
		{"hold", "-A", "--reason=incident 8", "--fleet-name=other"},
		{"release"},
		{"release", "-A"},
		{"move", "3", "fleet-0", "--wait=false"},
		{"move", "3", "fleet-0", "--timeout=3s"},
		{"move", "3", "fleet-1"},
		{"move", "99", "fleet-0"},
	} {
		s := cluster(t)
		b.WriteString(transcript(t, s, args...))
		for _, r := range s.Requests() {
			if r.Verb != "get" && r.Verb != "list" {
				b.WriteString("  sent: " + r.What() + " " + r.Namespace + "/" + r.Name + " " + string(r.Content) + "\n")
			}
		}
	}
	golden.Compare(t, "testdata/writes.txt", b.String())
}

// TestErrorsNameTheMissingRight: what may not be read is left out of a view, or is the error of the
// command where it is its subject.
func TestErrorsNameTheMissingRight(t *testing.T) {
	var b strings.Builder
	for _, tc := range []struct {
		pattern string
		args    []string
	}{
		{"list machinesets", []string{"tree"}},
		{"list nodes", []string{"tree", "workers"}},
		{"list leases", []string{"status"}},
		{"list leases", []string{"slots"}},
		{"list events", []string{"why", "workers-a-bcdfg"}},
		{"get namespaces", []string{"why", "workers-a-bcdfg"}},
		{"list pods", []string{"drain", "workers-a-tvwxz"}},
		{"get nodes", []string{"drain", "workers-a-tvwxz"}},
		{"patch machinedeployments", []string{"rollout", "pause", "workers"}},
		{"patch machines/status", []string{"preserve", "workers-a-npqrs", "--for=4h"}},
		{"patch leases", []string{"move", "3", "fleet-0"}},
		{"patch namespaces", []string{"hold", "--reason=x"}},
		{"get secrets", []string{"targets"}},
	} {
		s := cluster(t)
		what := schema.GroupResource{Resource: strings.Fields(tc.pattern)[1]}
		s.Refuse(tc.pattern, apierrors.NewForbidden(what, "", nil))
		b.WriteString("without the right to " + tc.pattern + "\n" + transcript(t, s, tc.args...))
	}
	golden.Compare(t, "testdata/rights.txt", b.String())
}

// TestNamesAreCompleted: a shell offers the names of objects, and nothing without the right to list
// them.
func TestNamesAreCompleted(t *testing.T) {
	s := cluster(t)
	var b strings.Builder
	for _, args := range [][]string{
		{"__complete", "tree", "w"},
		{"__complete", "rollout", "undo", ""},
		{"__complete", "why", "workers-b"},
		{"__complete", "drain", "spot"},
		{"__complete", "why", "workers-b", ""},
	} {
		b.WriteString("$ " + strings.Join(args, " ") + "\n" + call(t, s, args...).out)
	}
	s.Refuse("list *", apierrors.NewForbidden(schema.GroupResource{}, "", nil))
	b.WriteString("without rights\n" + call(t, s, "__complete", "tree", "").out)
	golden.Compare(t, "testdata/completions.txt", b.String())
}

// TestEachVerbNamesItsRights: the help of a verb has the rights that it needs.
func TestEachVerbNamesItsRights(t *testing.T) {
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, verb := range cmd.Commands() {
			check(verb)
		}
		if cmd.HasSubCommands() || cmd.Name() == "options" {
			return
		}
		if !strings.Contains(cmd.Long, "Rights:\n") {
			t.Errorf("%s: its help has no rights", cmd.CommandPath())
		}
	}
	check(newCommand(&program{streams: genericiooptions.NewTestIOStreamsDiscard()}))
}
