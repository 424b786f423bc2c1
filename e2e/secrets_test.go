//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// TestASecretIsWatchedWhileAMachineWaits: a machine waits for a Secret. The fleet watches the Secret by its name, and no longer
// than that; it does not poll it.
func TestASecretIsWatchedWhileAMachineWaits(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "awaited", "")
	const name = "late"
	position, err := s.lab.AuditEnd()
	s.must(err)
	s.createClass(name)
	s.createMachine(name, func(m *v1alpha1.Machine) { m.Spec.Class.Name = name })
	s.machineFails(name, driver.NotFound, "Secret")
	watches := func(of func(harness.AuditPosition) ([]harness.Request, error)) (n int) {
		requests, err := of(position)
		s.must(err)
		for _, r := range requests {
			if r.IsFleet() && r.Verb == "watch" && r.Resource == "secrets" && r.Namespace == s.name {
				n++
				if r.Code != 200 || !strings.Contains(r.URI, "fieldSelector=metadata.name%3D"+name) {
					t.Errorf("watch %s was answered with %d", r.URI, r.Code)
				}
			}
		}
		return n
	}
	s.eventually("the Secret is watched", func(context.Context) error {
		if watches(s.lab.Watches) == 0 {
			return errors.New("no watch was begun")
		}
		return nil
	})
	s.createSecret(name, map[string]string{v1alpha1.SecretKeyUserData: harness.UserData})
	s.eventually("the watch has ended", func(context.Context) error {
		if begun, ended := watches(s.lab.Watches), watches(s.lab.Requests); begun != ended {
			return fmt.Errorf("%d watches were begun, and %d have ended", begun, ended)
		}
		return nil
	})
	requests, err := s.lab.Requests(position)
	s.must(err)
	gets := 0
	for _, r := range requests {
		if r.IsFleet() && r.Verb == "get" && r.Resource == "secrets" && r.Namespace == s.name {
			gets++
		}
	}
	// By its machine: missing, and existing. And by the class, which adds the finalizer. Later it is read whenever classes are
	// reconciled.
	if gets > 8 {
		t.Errorf("the Secret was read %d times", gets)
	}
	s.eventually("the machine runs", func(ctx context.Context) error {
		m, err := s.api().Machines(s.name).Get(ctx, name, metav1.GetOptions{})
		if err == nil && m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
			err = fmt.Errorf("its status is %+v", m.Status)
		}
		return err
	})
	s.remove("machines", name)
	s.gone()
}
