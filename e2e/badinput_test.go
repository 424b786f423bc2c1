//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// invalidObject is an error in a user's input. Class, Secret, MachineDeployment and a stand-alone Machine have its name.
type invalidObject struct {
	name string
	// class is a merge patch of a valid class; "" omits the class.
	class string
	// noSecret omits the Secret, noUserData its user data.
	noSecret, noUserData bool
	// again is another error: a merge patch of the class or, where there is none, of the Machine. "" skips it.
	again string
	// mend is a merge patch of the class; "" creates what was omitted.
	mend string

	code driver.Code
	// message is part of the message; messageAgain is that after the other error.
	message, messageAgain string
}

var invalidObjects = []invalidObject{
	{
		name: "no-class", again: `{"spec":{"class":{"name":"no-class-either"}}}`,
		code: driver.NotFound, message: `MachineClass "no-class" does not exist`, messageAgain: `MachineClass "no-class-either" does not exist`,
	},
	{
		name: "unknown-provider", class: `{"provider":"unknown"}`, again: `{"provider":"not known"}`, mend: `{"provider":"simulated"}`,
		code: driver.InvalidArgument, message: `"unknown"`, messageAgain: `"not known"`,
	},
	{
		name: "no-secret", class: `{}`, noSecret: true,
		code: driver.NotFound, message: `Secret "no-secret"`,
	},
	{
		name: "wrong-secret", class: `{"secretRef":{"name":"lost"}}`, again: `{"secretRef":{"name":"gone"}}`, mend: `{"secretRef":{"name":"wrong-secret"}}`,
		code: driver.NotFound, message: `Secret "lost"`, messageAgain: `Secret "gone"`,
	},
	{
		name: "no-secret-named", class: `{"secretRef":null}`, mend: `{"secretRef":{"name":"no-secret-named"}}`,
		code: driver.InvalidArgument, message: `have no key "userData"`,
	},
	{
		name: "no-user-data", class: `{}`, noUserData: true,
		code: driver.InvalidArgument, message: `have no key "userData"`,
	},
	{
		name: "unknown-field", class: `{"providerSpec":{"colour":"red"}}`, again: `{"providerSpec":{"colour":null,"flavour":"sweet"}}`, mend: `{"providerSpec":{"flavour":null}}`,
		code: driver.InvalidArgument, message: `"colour"`, messageAgain: `"flavour"`,
	},
	{
		name: "wrong-type", class: `{"providerSpec":{"zone":1}}`, again: `{"providerSpec":{"zone":null,"tags":"many"}}`, mend: `{"providerSpec":{"tags":null}}`,
		code: driver.InvalidArgument, message: `zone`, messageAgain: `tags`,
	},
	{
		name: "refused-by-the-cloud", class: `{"providerSpec":{"instanceType":"huge-1"}}`, again: `{"providerSpec":{"instanceType":"huge-2"}}`, mend: `{"providerSpec":{"instanceType":"small-1"}}`,
		code: driver.InvalidArgument, message: `"huge-1"`, messageAgain: `"huge-2"`,
	},
}

// TestInvalidObjects creates all invalid objects in one namespace, at the same time, beside valid objects.
func TestInvalidObjects(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "mistakes", "")
	s.deploy("right", 1)
	s.running("right", 1)

	each := func(name string, f func(*space, invalidObject)) {
		t.Run(name, func(t *testing.T) {
			for _, m := range invalidObjects {
				t.Run(m.name, func(t *testing.T) {
					t.Parallel()
					f(s.in(t), m)
				})
			}
		})
	}
	each("Make", (*space).createInvalid)
	s.scale("right", 3)
	s.running("right", 3)
	s.reports("right", 3)
	each("Mend", (*space).correctInvalid)

	s.must(s.api().MachineDeployments(s.name).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	s.gone()
}

// createInvalid creates all objects of a case, and checks what the fleet reports about it, before and after the other error.
func (s *space) createInvalid(m invalidObject) {
	switch {
	case m.noUserData:
		s.createSecret(m.name, nil)
	case !m.noSecret:
		s.createSecret(m.name, map[string]string{v1alpha1.SecretKeyUserData: harness.UserData})
	}
	if m.class != "" {
		s.createClass(m.name)
		s.patch("machineclasses", m.name, m.class)
	}
	s.deploy(m.name, 2, func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = m.name })
	single := s.createMachine(s.invalidMachine(m), func(single *v1alpha1.Machine) {
		single.Spec.Class.Name = m.name
		// Its timeout is over at once. It does not become Failed for an error that a replacement would have, too.
		single.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineCreationTimeout: &metav1.Duration{Duration: time.Millisecond}}
	})
	s.fails(m.name, 2, m.code, m.message)
	s.machineFails(single.Name, m.code, m.message)
	if m.again == "" {
		return
	}
	if m.class != "" {
		s.patch("machineclasses", m.name, m.again)
	} else {
		s.patch("machines", single.Name, m.again)
	}
	s.machineFails(single.Name, m.code, m.messageAgain)
	s.oneEvent(single.UID, v1alpha1.EventCreateFailed)
}

func (s *space) invalidMachine(m invalidObject) string { return s.name + "-" + m.name }

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

// correctInvalid deletes the stand-alone Machine, corrects the other objects, and waits until the machines that failed run, without having
// been replaced. By then each was tried more than once, and one Event was emitted.
func (s *space) correctInvalid(m invalidObject) {
	s.remove("machines", s.invalidMachine(m))
	before := s.uids(m.name)
	switch {
	case m.class == "":
		s.createClass(m.name)
	case m.noSecret:
		s.createSecret(m.name, map[string]string{v1alpha1.SecretKeyUserData: harness.UserData})
	case m.noUserData:
		_, err := s.lab.Control.CoreV1().Secrets(s.name).Patch(s.Context(), m.name, types.MergePatchType,
			[]byte(`{"stringData":{"userData":"`+v1alpha1.PlaceholderBootstrapToken+`"}}`), metav1.PatchOptions{})
		s.must(err)
	default:
		s.patch("machineclasses", m.name, m.mend)
	}
	s.running(m.name, 2)
	s.reports(m.name, 2) // and no failure any more
	if after := s.uids(m.name); !slices.Equal(before, after) {
		s.Errorf("machines %v were replaced by %v", before, after)
	}
	for _, uid := range before {
		s.oneEvent(uid, v1alpha1.EventCreateFailed)
	}
	s.eventually("the stand-alone machine is gone", func(ctx context.Context) error {
		machines, err := s.machines(ctx, "")
		if err == nil && slices.ContainsFunc(machines, func(other v1alpha1.Machine) bool { return other.Name == s.invalidMachine(m) }) {
			err = fmt.Errorf("%s is still there", s.invalidMachine(m))
		}
		return err
	})
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
