package orphans

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// confirm decides about the suspects that are old enough, with reads that begin after the resources
// were listed. Those that it does not reach in time are unread: the verdict about a suspect is
// based on the complete list of Machines and on reads about that suspect alone.
func (s *sweep) confirm(ctx context.Context) error {
	var due []decide.Suspect
	for _, sc := range s.scopes {
		sc.verdicts = map[decide.Key]decide.Verdict{}
		for _, suspect := range sc.suspects {
			if sc.before.Suspects[suspect.Key()].Duration() >= s.rules.age {
				due = append(due, suspect)
			}
		}
	}
	if len(due) == 0 {
		return nil
	}
	machines, err := s.listMachines(ctx, due)
	if err != nil {
		return err
	}
	nodes, release := s.openTarget(ctx)
	defer release()
	for _, sc := range s.scopes {
		if err := s.confirmIn(ctx, sc, nodes, machines); err != nil {
			return err
		}
	}
	return nil
}

// longestOpen is how long it takes at most to open a target cluster, and longestRead to read a
// Node: sweeps of other namespaces wait meanwhile.
const longestOpen, longestRead = 10 * time.Second, 30 * time.Second

// nodes are those of the namespace's target cluster.
type nodes struct {
	cluster *target.Cluster // nil if there is none, or it is not available
	unread  string          // why it is not available
}

// openTarget returns the Nodes of the target cluster, also if it is not available: then the VMs are
// held that may have one, for a person to decide. release has to be called after the last read.
func (s *sweep) openTarget(ctx context.Context) (is nodes, release func()) {
	ctx, cancel := context.WithTimeout(ctx, longestOpen)
	defer cancel()
	cluster, release, err := s.cfg.Targets.Open(ctx, s.namespace)
	if err == nil {
		return nodes{cluster: cluster}, release
	}
	is.unread = err.Error()
	if unavailable, known := errors.AsType[*target.UnavailableError](err); known {
		is.unread = unavailable.Reason
	}
	return is, func() {}
}

// confirmIn decides about the suspects of one scope.
func (s *sweep) confirmIn(ctx context.Context, sc *scope, nodes nodes, machines *decide.Machines) (err error) {
	for _, suspect := range sc.suspects {
		facts := decide.Facts{
			Suspect: suspect, Entry: sc.before.Suspects[suspect.Key()], Age: s.rules.age, Machines: machines, Unread: nodes.unread,
		}
		if facts.Entry.Duration() < s.rules.age {
			continue
		}
		if s.isOver() {
			sc.unread = append(sc.unread, suspect)
			continue
		}
		if facts.ByName, err = s.readMachine(ctx, suspect.Machine); err != nil {
			return err
		}
		if facts.Node, err = nodes.read(ctx, suspect.Resource); err != nil {
			return err
		}
		sc.verdicts[suspect.Key()] = s.rules.confirm(facts)
	}
	return nil
}

// leaveUnread leaves the suspects that confirm has not reached to the next sweep. Errors: there are
// some.
func (s *sweep) leaveUnread() error {
	unread := 0
	for _, sc := range s.scopes {
		if len(sc.unread) > 0 {
			unread += len(sc.unread)
			s.beginWith(sc)
		}
	}
	if unread == 0 {
		return nil
	}
	return fmt.Errorf("confirm suspects: expected the end within %s, got none for %d; later sweeps confirm these", longestConfirm, unread)
}

// partOfMachine is the part of a Machine that is decoded of one that does not decode.
type partOfMachine struct {
	Spec struct {
		Class struct {
			Name string `json:"name"`
		} `json:"class"`
		ProviderID string `json:"providerID"`
	} `json:"spec"`
}

// listMachines reads all Machines of the namespace, with their provider IDs.
func (s *sweep) listMachines(ctx context.Context, due []decide.Suspect) (*decide.Machines, error) {
	machines := decide.NewMachines(due, s.classes)
	return machines, decode.UntilPage(ctx, "the Machines", metav1.ListOptions{Limit: s.rules.page}, s.cfg.Machines.Machines(s.namespace).List,
		func(page *v1alpha1.MachineList, undecodable []*decode.Failure) bool {
			for _, f := range undecodable {
				var part partOfMachine
				if f.Into(&part) != nil {
					machines.AddUndecodable(f.Name)
					continue
				}
				machines.Add(f.Name, decide.Machine{UID: f.UID, ProviderID: part.Spec.ProviderID}, part.Spec.Class.Name)
			}
			for i := range page.Items {
				m := &page.Items[i]
				machines.Add(m.Name, decide.Machine{UID: m.UID, ProviderID: m.Spec.ProviderID}, m.Spec.Class.Name)
			}
			return false
		})
}

// readMachine reads a Machine live; nil if there is none.
func (s *sweep) readMachine(ctx context.Context, name string) (*decide.Machine, error) {
	m, err := s.cfg.Machines.Machines(s.namespace).Get(ctx, name, metav1.GetOptions{})
	if f, undecodable := decode.FailureOf(err); undecodable {
		var part partOfMachine
		if err := f.Into(&part); err != nil {
			//nolint:staticcheck // it begins with the name of a kind
			return nil, fmt.Errorf("Machine %s cannot be decoded, so that its VM is not known: %w", name, err)
		}
		return &decide.Machine{UID: f.UID, ProviderID: part.Spec.ProviderID}, nil
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read Machine %s: %w", name, err)
	}
	return &decide.Machine{UID: m.UID, ProviderID: m.Spec.ProviderID}, nil
}

// read reads the Node of a VM live.
func (n nodes) read(ctx context.Context, vm driver.Resource) (decide.Node, error) {
	switch {
	case vm.Kind != driver.ResourceVM:
		return decide.NodeAbsent, nil
	case n.unread != "":
		return decide.NodeUnread, nil
	case n.cluster == nil:
		return decide.NodeAbsent, nil
	case vm.NodeName == "":
		return decide.NodeUnknown, nil
	}
	ctx, cancel := context.WithTimeout(ctx, longestRead)
	defer cancel()
	node, err := n.cluster.Client.CoreV1().Nodes().Get(ctx, vm.NodeName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return decide.NodeAbsent, nil
	case err != nil:
		return decide.NodeUnknown, fmt.Errorf("read Node %s of an orphan: %w", vm.NodeName, err)
	case node.Spec.ProviderID != "" && !driver.SameVM(vm.ID, node.Spec.ProviderID):
		return decide.NodeAbsent, nil
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return decide.NodeReady, nil
		}
	}
	return decide.NodeNotReady, nil
}
