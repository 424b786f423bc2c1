package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	machineclient "github.com/gardener/machine-controller-manager/pkg/client/clientset/versioned/typed/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
)

// scaler is the cluster-autoscaler's view of the two clusters.
type scaler struct {
	machineAPI                  machineclient.MachineV1alpha1Interface
	nodeAPI                     coreclient.NodeInterface
	deploymentAPI               appsclient.DeploymentsGetter
	groups                      groups
	generation                  int
	retryInterval, retryTimeout time.Duration
	clock                       func() time.Time
}

// sized is the answer to a change of size.
type sized struct {
	Replicas int32 `json:"replicas"`
	// Deleted are the newly marked machines.
	Deleted []string `json:"deleted,omitempty"`
	// Skipped has the reasons why others were not, by machine.
	Skipped map[string]string `json:"skipped,omitempty"`
	// Writes counts those of the MachineDeployment that were accepted. One that conflicts with a write
	// of the fleet is rejected.
	Writes int `json:"writes"`
}

// refresh returns how many pods of machine-controller-manager are available. The cluster-autoscaler
// begins no pass without one.
func (s *scaler) refresh(ctx context.Context, g group) (int32, error) {
	d, err := s.deploymentAPI.Deployments(g.namespace).Get(ctx, "machine-controller-manager", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, err
	}
	if apierrors.IsNotFound(err) || d.Status.AvailableReplicas == 0 {
		return 0, errOffline
	}
	return d.Status.AvailableReplicas, nil
}

// resize changes the replicas in one write. They are not lowered while machines are being replaced.
func (s *scaler) resize(ctx context.Context, g group, by int) (*sized, error) {
	var answer sized
	err := s.retry(ctx, func(ctx context.Context) error {
		d, err := s.machineAPI.MachineDeployments(g.namespace).Get(ctx, g.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		size := int(d.Spec.Replicas) + by
		switch {
		case size > g.max:
			return fmt.Errorf("%d machines, at most %d: %w", size, g.max, errSize)
		case by < 0 && rolling(d):
			return errRolling
		}
		d.Spec.Replicas = int32(max(size, g.min))
		return s.put(ctx, d, &answer)
	})
	return &answer, err
}

// put writes the whole MachineDeployment.
func (s *scaler) put(ctx context.Context, d *v1alpha1.MachineDeployment, answer *sized) error {
	written, err := s.machineAPI.MachineDeployments(d.Namespace).Update(ctx, d, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	answer.Writes++
	answer.Replicas = written.Spec.Replicas
	return nil
}

// retry retries a failed operation, until it is rejected or its time is over.
func (s *scaler) retry(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.retryTimeout)
	defer cancel()
	tick := time.NewTicker(s.retryInterval)
	defer tick.Stop()
	for {
		err := do(ctx)
		var why refusal
		if err == nil || errors.As(err, &why) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// deleteNodes requests the deletion of the machines of some Nodes, and lowers the replicas by their
// number. IDs are names of Nodes, or requested://<machine> for machines that have none.
func (s *scaler) deleteNodes(ctx context.Context, g group, ids []string) (*sized, error) {
	d, err := s.machineAPI.MachineDeployments(g.namespace).Get(ctx, g.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if int(d.Spec.Replicas) <= g.min {
		return nil, fmt.Errorf("%d machines, at least %d: %w", d.Spec.Replicas, g.min, errSize)
	}
	chosen, skipped, err := s.choose(ctx, g, ids)
	answer := &sized{Replicas: d.Spec.Replicas, Skipped: skipped}
	if err != nil || len(chosen) == 0 {
		return answer, err
	}
	if rolling(d) {
		return nil, errRolling
	}
	if s.generation == setsPriorities {
		if chosen, err = s.prioritize(ctx, chosen); err != nil {
			return nil, err
		}
	}
	names := make([]string, len(chosen))
	for i, c := range chosen {
		names[i] = c.machine.Name
	}
	if err := s.retry(ctx, func(ctx context.Context) error {
		d, err := s.machineAPI.MachineDeployments(g.namespace).Get(ctx, g.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		changed, fresh, err := lowered(d, names, s.generation, s.clock())
		answer.Replicas, answer.Deleted = d.Spec.Replicas, fresh
		if err != nil || changed == nil {
			return err
		}
		return s.put(ctx, changed, answer)
	}); err != nil || s.generation == setsPriorities {
		return answer, err
	}
	for _, c := range chosen {
		if slices.Contains(answer.Deleted, c.machine.Name) {
			err = errors.Join(err, s.cordon(ctx, c.node))
		}
	}
	return answer, err
}

// chosen is a machine to delete, with its Node if it has one.
type chosen struct {
	machine *v1alpha1.Machine
	node    *corev1.Node
}

// choose finds the machines of IDs, except exempt ones.
func (s *scaler) choose(ctx context.Context, g group, ids []string) (found []chosen, skipped map[string]string, err error) {
	w, err := s.look(ctx)
	if err != nil {
		return nil, nil, err
	}
	skipped = map[string]string{}
	for _, id := range ids {
		node, machine := w.find(id)
		if machine == nil {
			return nil, nil, fmt.Errorf("there is no machine of %q", id)
		}
		deployment, err := deploymentOf(machine, w.sets)
		if err != nil {
			return nil, nil, err
		}
		if deployment != g.name {
			return nil, nil, fmt.Errorf("machine %s is of %s: %w", machine.Name, deployment, errOtherGroup)
		}
		newest := s.generation == marksWithTime // older ones know neither of the two
		why := exempt(machine, newest && w.preserved[machine.Name], newest && node != nil && node.Annotations[annotationKept] == "true")
		if why != "" {
			skipped[machine.Name] = why
			continue
		}
		found = append(found, chosen{machine, node})
	}
	return found, skipped, nil
}

// prioritize sets the priority of machines to be deleted first, with a write for each, and returns
// those that did not have it before.
func (s *scaler) prioritize(ctx context.Context, all []chosen) (fresh []chosen, err error) {
	for _, c := range all {
		if c.machine.Annotations[annotationPriority] == priorityFirst {
			continue
		}
		fresh = append(fresh, c)
		if err := s.retry(ctx, func(ctx context.Context) error {
			m, err := s.machineAPI.Machines(c.machine.Namespace).Get(ctx, c.machine.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, annotationPriority, priorityFirst)
			_, err = s.machineAPI.Machines(m.Namespace).Update(ctx, m, metav1.UpdateOptions{})
			return err
		}); err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// cordon cordons a Node. One that is gone, or was written meanwhile, is skipped.
func (s *scaler) cordon(ctx context.Context, node *corev1.Node) error {
	if node == nil || node.Spec.Unschedulable || node.Annotations[annotationKept] == "true" {
		return nil
	}
	node = node.DeepCopy()
	node.Spec.Unschedulable = true
	_, err := s.nodeAPI.Update(ctx, node, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// grouped is the answer to a query for a Node's group.
type grouped struct {
	// Group is "" for a Node that has no machine, or a machine of a group that is not scaled.
	Group   string `json:"group"`
	Machine string `json:"machine"`
}

// groupOfNode finds the node group of a Node. An error here ends the whole loop of the
// cluster-autoscaler.
func (s *scaler) groupOfNode(ctx context.Context, name string) (*grouped, error) {
	w, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	_, machine := w.find(name)
	if machine == nil {
		return &grouped{}, nil
	}
	deployment, err := deploymentOf(machine, w.sets)
	if err != nil {
		return nil, err
	}
	if _, scaled := s.groups[deployment]; !scaled {
		if s.generation == setsPriorities {
			return nil, fmt.Errorf("machine %s is of %s: %w", machine.Name, deployment, errOtherGroup)
		}
		return &grouped{Machine: machine.Name}, nil
	}
	return &grouped{deployment, machine.Name}, nil
}

// nodes returns the instances of a group.
func (s *scaler) nodes(ctx context.Context, g group) ([]instance, error) {
	w, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	return instancesOf(g.name, w.machines, w.nodes), nil
}

// templateNode returns the template of a new Node of a group.
func (s *scaler) templateNode(ctx context.Context, g group) (*template, error) {
	d, err := s.machineAPI.MachineDeployments(g.namespace).Get(ctx, g.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	name, err := classOf(d)
	if err != nil {
		return nil, err
	}
	class, err := s.machineAPI.MachineClasses(g.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	nodes, err := s.nodeAPI.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return templateOf(d, class, nodes.Items)
}

// world is the observed objects.
type world struct {
	machines []v1alpha1.Machine
	sets     []v1alpha1.MachineSet
	nodes    []corev1.Node
	// preserved has the names of preserved machines. Newer types have a field for it.
	preserved map[string]bool
}

// look reads the machines of the groups' namespace and all Nodes.
func (s *scaler) look(ctx context.Context) (*world, error) {
	w := &world{preserved: map[string]bool{}}
	text, err := s.machineAPI.RESTClient().Get().Namespace(s.groups.namespace()).Resource("machines").Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("list the machines: %w", err)
	}
	var machines v1alpha1.MachineList
	var newer struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				CurrentStatus struct{ PreserveExpiryTime *metav1.Time }
			}
		}
	}
	if err := errors.Join(json.Unmarshal(text, &machines), json.Unmarshal(text, &newer)); err != nil {
		return nil, fmt.Errorf("read the machines: %w", err)
	}
	for _, m := range newer.Items {
		w.preserved[m.Metadata.Name] = m.Status.CurrentStatus.PreserveExpiryTime != nil
	}
	sets, err1 := s.machineAPI.MachineSets(s.groups.namespace()).List(ctx, metav1.ListOptions{})
	nodes, err2 := s.nodeAPI.List(ctx, metav1.ListOptions{})
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("list MachineSets and Nodes: %w", err)
	}
	w.machines, w.sets, w.nodes = machines.Items, sets.Items, nodes.Items
	return w, nil
}

// find returns the Node and the machine of the name of a Node, or of requested://<machine>; nil for
// what is not there.
func (w *world) find(id string) (node *corev1.Node, machine *v1alpha1.Machine) {
	if strings.HasPrefix(id, requested) {
		machine = machineOf(id, w.machines)
		if machine != nil {
			id = machine.Labels["node"]
		}
	}
	for i := range w.nodes {
		if w.nodes[i].Name == id {
			node = &w.nodes[i]
		}
	}
	if machine == nil && node != nil && node.Spec.ProviderID != "" {
		machine = machineOf(node.Spec.ProviderID, w.machines)
	}
	return node, machine
}
