//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestMachineSet: a set copies its template to its machines, deletes machines in their order, creates none while it is frozen, and
// counts its machines.
func TestMachineSet(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "set", "")
	s.createSet("pool", 4)
	s.running("pool", 4)
	s.handsItsTemplate()
	s.deletionOrder()
	s.freezing()
	s.exported("machine_set", "pool", 2)
	s.remove("machinesets", "pool")
	s.gone()
	s.exported("machine_set", "pool", -1)
}

// handsItsTemplate changes fields that need no new machines.
func (s *space) handsItsTemplate() {
	s.Helper()
	before := s.joined()
	s.patch("machinesets", "pool", `{"spec":{"template":{"spec":{"drainTimeout":"5m","nodeTemplate":{`+
		`"metadata":{"labels":{"set":"synced"}},"spec":{"taints":[{"key":"set","value":"synced","effect":"PreferNoSchedule"}]}}}}}}`)
	s.onNodes("the Nodes match the template", "pool", func(n *corev1.Node, wrong *complaints) {
		wrong.unless(n.Labels["set"] == "synced" && hasTaint(n, "set", "synced"), "%s: %v %v", n.Name, n.Labels, n.Spec.Taints)
	})
	machines, err := s.machines(s.Context(), "pool")
	s.must(err)
	for _, m := range machines {
		if c := m.Spec.MachineConfiguration; c == nil || c.MachineDrainTimeout == nil || c.MachineDrainTimeout.Duration != 5*time.Minute {
			s.Errorf("%s has the configuration %+v", m.Name, c)
		}
		if _, was := before[m.Name]; !was {
			s.Errorf("%s is new", m.Name)
		}
	}
}

// deletionOrder sets priorities of machines, and lowers the replicas at once.
func (s *space) deletionOrder() {
	s.Helper()
	machines, err := s.machines(s.Context(), "pool")
	s.must(err)
	slices.SortFunc(machines, func(a, b v1alpha1.Machine) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	kept, plain, second, first := machines[0], machines[1], machines[2], machines[3]
	s.annotate(kept.Name, v1alpha1.AnnotationPreserve, v1alpha1.PreserveNow)
	s.eventually("the oldest one is preserved", func(ctx context.Context) error {
		m, err := s.api().Machines(s.name).Get(ctx, kept.Name, metav1.GetOptions{})
		if err == nil && m.Status.CurrentStatus.PreserveExpiryTime == nil {
			err = errors.New("it is not")
		}
		return err
	})
	s.annotate(kept.Name, v1alpha1.AnnotationPriority, "0")
	s.annotate(second.Name, v1alpha1.AnnotationPriority, "2")
	s.annotate(first.Name, v1alpha1.AnnotationPriority, "1")
	s.patch("machinesets", "pool", `{"spec":{"replicas":3}}`)
	s.remain("priority 1 goes first", kept.UID, plain.UID, second.UID)
	s.patch("machinesets", "pool", `{"spec":{"replicas":2}}`)
	s.remain("then priority 2", kept.UID, plain.UID)
	s.patch("machinesets", "pool", `{"spec":{"replicas":1}}`)
	s.remain("a preserved one is the last", kept.UID)

	// A machine that the autoscaler has named is deleted although there is no excess, and another one is created.
	at := time.Now().UTC().Format(time.RFC3339)
	s.annotate(kept.Name, v1alpha1.AnnotationPriority, v1alpha1.PriorityTriggered)
	s.annotate(kept.Name, v1alpha1.AnnotationMarkedForDeletionTime, at)
	s.patch("machinesets", "pool", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationLastReplicaChangeByScaler, at))
	s.eventually("the named machine is replaced", func(ctx context.Context) error {
		machines, err := s.machines(ctx, "pool")
		if err != nil || len(machines) != 1 || machines[0].UID == kept.UID {
			return fmt.Errorf("there are %d machines, %w", len(machines), err)
		}
		return nil
	})
}

func (s *space) annotate(machine, key, value string) {
	s.Helper()
	s.patch("machines", machine, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value))
}

// remain waits until exactly these machines remain.
func (s *space) remain(what string, want ...types.UID) {
	s.Helper()
	slices.Sort(want)
	s.eventually(what, func(ctx context.Context) error {
		machines, err := s.machines(ctx, "pool")
		if err != nil {
			return err
		}
		var got []types.UID
		for _, m := range machines {
			got = append(got, m.UID)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("%v are left, want %v", got, want)
		}
		return nil
	})
}

// freezing raises the replicas of a frozen set.
func (s *space) freezing() {
	s.Helper()
	s.patch("machinesets", "pool", fmt.Sprintf(`{"metadata":{"labels":{%q:"True"}},"spec":{"replicas":2}}`, v1alpha1.LabelFreeze))
	s.eventually("the set has observed it", func(ctx context.Context) error {
		set, err := s.api().MachineSets(s.name).Get(ctx, "pool", metav1.GetOptions{})
		if err == nil && set.Status.ObservedGeneration != set.Generation {
			err = fmt.Errorf("it has seen generation %d of %d", set.Status.ObservedGeneration, set.Generation)
		}
		return err
	})
	machines, err := s.machines(s.Context(), "pool")
	s.must(err)
	if len(machines) != 1 {
		s.Errorf("a frozen set has %d machines", len(machines))
	}
	s.frozen(true)
	s.patch("machinesets", "pool", fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, v1alpha1.AnnotationUnfreeze))
	s.running("pool", 2)
	s.frozen(false)
}

// frozen waits until the set's label and its condition report whether it is frozen, and there is no request to end that.
func (s *space) frozen(want bool) {
	s.Helper()
	s.eventually(fmt.Sprintf("the set reports that it is frozen: %v", want), func(ctx context.Context) error {
		set, err := s.api().MachineSets(s.name).Get(ctx, "pool", metav1.GetOptions{})
		if err != nil {
			return err
		}
		frozen := slices.ContainsFunc(set.Status.Conditions, func(c v1alpha1.MachineSetCondition) bool {
			return c.Type == v1alpha1.MachineSetFrozen && c.Status == corev1.ConditionTrue && c.Reason == v1alpha1.ReasonFreezeLabel
		})
		_, requested := set.Annotations[v1alpha1.AnnotationUnfreeze]
		if labelled := set.Labels[v1alpha1.LabelFreeze] == "True"; labelled != want || frozen != want || requested {
			return fmt.Errorf("labels %v, annotations %v, conditions %v", set.Labels, set.Annotations, set.Status.Conditions)
		}
		return nil
	})
}

// exported waits until one replica exports the number of machines of a "machine_set" or "machine_deployment", and no other does; or
// until none does when it is negative.
func (s *space) exported(kind, of string, machines int) {
	s.Helper()
	name := fmt.Sprintf("mcm_%s_status_replicas{name=%q,namespace=%q}", kind, of, s.name)
	s.eventually("one replica exports "+name, func(ctx context.Context) error {
		replicas, err := s.lab.Replicas(ctx)
		if err != nil {
			return err
		}
		var reported []float64
		for _, replica := range replicas {
			if value, err := s.lab.Metric(ctx, replica, name); err == nil {
				reported = append(reported, value)
			}
		}
		want := []float64{float64(machines)}
		if machines < 0 {
			want = nil
		}
		if !slices.Equal(reported, want) {
			return fmt.Errorf("they report %v, want %v", reported, want)
		}
		return nil
	})
}
