//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// mcf runs kubectl mcf in the space, and returns what it prints and its exit code.
func (s *space) mcf(args ...string) (out string, code int) {
	s.Helper()
	bin, err := harness.Bin()
	s.must(err)
	args = append([]string{"-n", s.name, "--target-kubeconfig", filepath.Join(s.lab.Dir, "target.kubeconfig")}, args...)
	cmd := exec.CommandContext(s.Context(), filepath.Join(bin, "kubectl-mcf"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(s.lab.Dir, "admin.kubeconfig"))
	printed, err := cmd.CombinedOutput()
	if exit, failed := errors.AsType[*exec.ExitError](err); failed {
		return string(printed), exit.ExitCode()
	}
	s.must(err)
	return string(printed), 0
}

// shows runs kubectl mcf, and checks its exit code and what it prints.
func (s *space) shows(code int, args string, texts ...string) {
	s.Helper()
	out, got := s.mcf(strings.Fields(args)...)
	if got != code {
		s.Errorf("kubectl mcf %s: exit code %d, want %d:\n%s", args, got, code, out)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			s.Errorf("kubectl mcf %s: want %q in\n%s", args, text, out)
		}
	}
}

// TestKubectlMCF: an operator looks at a pool of machines, rolls it, preserves a machine, holds
// deletions, and asks why a machine is gone.
func TestKubectlMCF(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "mcf", "")
	s.deploy("pool", 2)
	s.running("pool", 2)
	s.shows(0, "rollout status pool", "is rolled out")
	s.shows(0, "tree", "MachineDeployment pool", "2 Machines", "Running")
	s.shows(0, "status", "1 MachineDeployment, 2 Machines (2 Running)")
	s.shows(0, "owners pool", "fleet-", "Held")
	s.shows(0, "slots", fmt.Sprintf("of %d slots are held by sessions that live", s.lab.SlotCount), "leads")
	s.shows(0, "targets", "yes")
	s.shows(0, "top --endpoints "+filepath.Join(s.lab.Dir, "endpoints.json"), "CORES", "fleet-")
	if out, code := s.mcf("version", "--endpoints", filepath.Join(s.lab.Dir, "endpoints.json")); code != 0 ||
		!strings.Contains(out, "fleet-0") || strings.Contains(out, "unknown") {
		s.Errorf("kubectl mcf version: exit code %d, and\n%s", code, out)
	}
	machines, err := s.machines(s.Context(), "pool")
	s.must(err)
	kept, gone := machines[0], machines[1]
	s.shows(0, "why "+kept.Name, "It waits for nothing", "Joined", "replica fleet-")
	s.shows(0, "drain "+kept.Labels[v1alpha1.LabelNode], "is not being drained")

	s.shows(0, "hold --reason incident", "deletions are held in namespace "+s.name)
	s.shows(0, "status", "DeletionsHeld")
	s.shows(0, "release", "incident")
	s.shows(0, "preserve "+kept.Name+" --for 4h", "is preserved until")
	s.shows(0, "tree --grouping=false", "it is preserved until")
	s.shows(0, "unpreserve "+kept.Name, "ends its preservation")

	s.shows(0, "rollout pause pool", "paused")
	s.shows(1, "rollout restart pool", "is paused")
	s.shows(0, "rollout resume pool", "resumed")
	s.shows(0, "rollout restart pool", "restarted")
	s.shows(0, "rollout status pool", "is rolled out")
	s.shows(0, "rollout history pool", "current", "2/2")
	s.shows(0, "rollout undo pool", "is rolled back to revision 1")
	s.shows(0, "rollout status pool", "is rolled out")
	s.eventually("the machine is gone", func(ctx context.Context) error {
		_, err := s.api().Machines(s.name).Get(ctx, gone.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
	s.shows(0, "why "+gone.Name, "It does not exist any more", "RolledOut")
	s.shows(1, "why nothing", "no Events or receipts")
}
