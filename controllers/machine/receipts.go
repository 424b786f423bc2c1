package machine

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/deletionlog"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
)

// decided returns why the machine's set has deleted the machine; the zero value when the set has not. The set's newest version counts: the
// cache may show the deletion of a machine before the intent to delete it.
func (c *Controller) decided(m *v1alpha1.Machine) receipt.Reason {
	if m.DeletionTimestamp == nil {
		return receipt.Reason{}
	}
	set, ok := ownerref.SetOf(c.cfg.View, m)
	if !ok {
		return receipt.Reason{}
	}
	if c.cfg.Sets != nil {
		set = c.cfg.Sets.Newest(set)
	}
	if in, err := machinefacts.ReadIntents(set); err == nil { // the controller of sets reports the error
		if why, known := in.Reason(m.UID); known {
			return why
		}
	}
	if set.DeletionTimestamp != nil && !m.DeletionTimestamp.Before(set.DeletionTimestamp) {
		return machinefacts.ParentDeleted(set)
	}
	return receipt.Reason{}
}

// deletionOfVM returns the deletion of the machine's VM. Its root has an Event of that only if no other Event on it names the machine.
func (c *Controller) deletionOfVM(p *pass, why receipt.Reason) deletionlog.Deletion {
	m := p.world.Machine
	d := deletionlog.Deletion{
		Object: receipt.Object{
			Kind: receipt.VM, Namespace: m.Namespace, ProviderID: m.Spec.ProviderID, Machine: m.Name, MachineUID: m.UID, Node: lifecycle.NodeName(m),
		},
		Reason: why, About: []runtime.Object{m}, Recorded: c.memory.of(m.UID).deletion,
	}
	if why.Rule == receipt.MachineDeleted {
		d.About = c.withRoot(m)
	}
	return d
}

// deletionOfNode returns the deletion of the machine's Node.
func deletionOfNode(p *pass, node *corev1.Node, why receipt.Reason) deletionlog.Deletion {
	m := p.world.Machine
	return deletionlog.Deletion{
		Object: receipt.Object{
			Kind: receipt.Node, Namespace: m.Namespace, Name: node.Name, UID: node.UID, ProviderID: node.Spec.ProviderID, Machine: m.Name, MachineUID: m.UID,
		},
		Reason: why, About: []runtime.Object{m},
	}
}

// withRoot returns a machine and its root, if it has one that the cache shows.
func (c *Controller) withRoot(m *v1alpha1.Machine) []runtime.Object {
	about := []runtime.Object{m}
	if root, ok := ownerref.RootOf(c.cfg.View, m); ok {
		if root, ok := root.(runtime.Object); ok {
			about = append(about, root)
		}
	}
	return about
}
