//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

func (s *space) createSecret(name string, data map[string]string) {
	s.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}
	_, err := s.lab.Control.CoreV1().Secrets(s.name).Create(s.Context(), secret, metav1.CreateOptions{})
	s.must(err)
}

// createClass creates a valid class with a Secret of the same name.
func (s *space) createClass(name string) {
	s.Helper()
	class := harness.Class(s.name, "")
	class.Name, class.SecretRef.Name = name, name
	_, err := s.api().MachineClasses(s.name).Create(s.Context(), class, metav1.CreateOptions{})
	s.must(err)
}

// uids of a pool's machines, sorted.
func (s *space) uids(pool string) []types.UID {
	s.Helper()
	machines, err := s.machines(s.Context(), pool)
	s.must(err)
	var uids []types.UID
	for _, m := range machines {
		uids = append(uids, m.UID)
	}
	slices.Sort(uids)
	return uids
}

// fails waits until n machines of a MachineDeployment cannot be created, and all objects report that.
func (s *space) fails(pool string, n int, code driver.Code, message string) {
	s.Helper()
	s.eventually(fmt.Sprintf("the machines of %s fail with %s", pool, code), func(ctx context.Context) error {
		machines, err := s.machines(ctx, pool)
		if err != nil {
			return err
		}
		var wrong complaints
		failed := 0
		for _, m := range machines {
			if err := checkFailed(m, code, message); err != nil {
				wrong = append(wrong, err)
			} else {
				failed++
			}
		}
		if failed < n {
			return fmt.Errorf("%d of %d machines fail: %w", failed, len(machines), wrong.err())
		}
		set, err := s.api().MachineSets(s.name).Get(ctx, metav1.GetControllerOf(&machines[0]).Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		d, err := s.api().MachineDeployments(s.name).Get(ctx, pool, metav1.GetOptions{})
		if err != nil {
			return err
		}
		wrong = nil
		wrong.unless(slices.ContainsFunc(set.Status.Conditions, func(c v1alpha1.MachineSetCondition) bool {
			return c.Type == v1alpha1.MachineSetMachineCreateFailure && c.Status == corev1.ConditionTrue &&
				c.Reason == v1alpha1.ReasonMachineCreateFailed && strings.Contains(c.Message, message)
		}), "conditions of MachineSet %s: %v", set.Name, set.Status.Conditions)
		wrong.unless(slices.ContainsFunc(d.Status.Conditions, func(c v1alpha1.MachineDeploymentCondition) bool {
			return c.Type == v1alpha1.MachineDeploymentMachineCreateFailure && c.Status == corev1.ConditionTrue &&
				c.Reason == v1alpha1.ReasonMachineCreateFailed && strings.Contains(c.Message, message)
		}), "conditions of MachineDeployment %s: %v", d.Name, d.Status.Conditions)
		wrong.unless(len(d.Status.FailedMachines) == failed, "MachineDeployment %s lists %d failed machines", d.Name, len(d.Status.FailedMachines))
		return wrong.err()
	})
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
	var wrong complaints
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

// emitsTimes waits for the Events with a reason on a machine, and reports an error if there are more than wanted.
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
