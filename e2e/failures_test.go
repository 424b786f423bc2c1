//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

func (s *space) createSecret(name string, data map[string]string) {
	s.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}
	_, err := s.lab.Control.CoreV1().Secrets(s.name).Create(s.Context(), secret, metav1.CreateOptions{})
	s.must(err)
}

// machineFails waits until one machine cannot be created.
func (s *space) machineFails(name string, code driver.Code, message string) {
	s.Helper()
	s.eventually(fmt.Sprintf("machine %s fails with %s", name, code), func(ctx context.Context) error {
		m, err := s.api().Machines(s.name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s.seen.note(*m)
		return checkFailed(*m, code, message)
	})
}

// checkFailed compares a machine with one that cannot be created and is retried.
func checkFailed(m v1alpha1.Machine, code driver.Code, message string) error {
	op, phase := m.Status.LastOperation, m.Status.CurrentStatus.Phase
	var wrong deviations
	wrong.unless(phase == v1alpha1.MachineCrashLoopBackOff, "%s: phase %q", m.Name, phase)
	wrong.unless(op.Type == v1alpha1.MachineOperationCreate && op.State == v1alpha1.MachineStateFailed && op.ErrorCode == code.String() &&
		strings.Contains(op.Description, message), "%s: last operation %+v", m.Name, op)
	return wrong.err()
}

// oneEvent checks that a machine has exactly one Event with the reason.
func (s *space) oneEvent(machine types.UID, reason string) {
	s.Helper()
	s.emitsTimes(machine, reason, 1)
}

// emitsTimes waits for the Events with a reason on a machine, and reports an error if there are
// more than wanted.
func (s *space) emitsTimes(machine types.UID, reason string, want int) {
	s.Helper()
	reported := 0
	s.eventually(fmt.Sprintf("%d Events %s are emitted on machine %s", want, reason, machine), func(ctx context.Context) error {
		list, err := s.lab.Control.EventsV1().Events(s.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		reported = 0
		for _, e := range list.Items {
			if e.Regarding.UID == machine && e.Reason == reason {
				reported++
				if e.Series != nil {
					reported += int(e.Series.Count)
				}
			}
		}
		if reported < want {
			return fmt.Errorf("%d of %d Events are", reported, len(list.Items))
		}
		return nil
	})
	if reported > want {
		s.Errorf("%s: %d Events %s, want %d", machine, reported, reason, want)
	}
}
