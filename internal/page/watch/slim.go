package watch

import (
	"maps"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

const (
	// mostText is how many bytes of a message are stored, and mostName those of a name: what API
	// servers accept as the name of an object. They do not check those of owners, phases and codes.
	mostText, mostName = 1024, 253
)

// slimMeta returns what is needed of the metadata of an object.
func slimMeta(m metav1.ObjectMeta, labels, annotations []string) metav1.ObjectMeta {
	slim := metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, OwnerReferences: slimOwners(m.OwnerReferences),
	}
	slim.Labels, slim.Annotations = some(m.Labels, labels), some(m.Annotations, annotations)
	return slim
}

// slimOwners returns the controller, which is the only owner that is shown.
func slimOwners(all []metav1.OwnerReference) []metav1.OwnerReference {
	for _, o := range all {
		if o.Controller != nil && *o.Controller {
			o.Name = bounded.Text(o.Name, mostName)
			return []metav1.OwnerReference{o}
		}
	}
	return nil
}

func some(of map[string]string, keys []string) (kept map[string]string) {
	for _, key := range keys {
		if value, has := of[key]; has {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept
}

func slimMachine(m *v1alpha1.Machine) *v1alpha1.Machine {
	s := &v1alpha1.Machine{ObjectMeta: slimMeta(m.ObjectMeta,
		[]string{v1alpha1.LabelSlot, v1alpha1.LabelNode, v1alpha1.LabelForceDeletion, v1alpha1.LabelForceDrain},
		[]string{v1alpha1.AnnotationPreserve})}
	s.Spec.Class.Name = m.Spec.Class.Name
	if zone, has := m.Spec.NodeTemplateSpec.Labels[zoneLabel]; has {
		s.Spec.NodeTemplateSpec.Labels = map[string]string{zoneLabel: zone}
	}
	if own := m.Spec.MachineConfiguration; own != nil {
		s.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineDrainTimeout: own.MachineDrainTimeout, MaxEvictRetries: own.MaxEvictRetries,
		}
	}
	s.Status.CurrentStatus, s.Status.LastOperation = m.Status.CurrentStatus, m.Status.LastOperation
	s.Status.CurrentStatus.Phase = v1alpha1.MachinePhase(bounded.Text(string(m.Status.CurrentStatus.Phase), mostName))
	s.Status.LastOperation.ErrorCode = bounded.Text(m.Status.LastOperation.ErrorCode, mostName)
	s.Status.LastOperation.Description = bounded.Text(m.Status.LastOperation.Description, mostText)
	return s
}

func slimSet(m *v1alpha1.MachineSet) *v1alpha1.MachineSet {
	s := &v1alpha1.MachineSet{ObjectMeta: slimMeta(m.ObjectMeta,
		[]string{v1alpha1.LabelSlot, v1alpha1.LabelFreeze, v1alpha1.LabelMachineTemplateHash},
		[]string{v1alpha1.AnnotationIntents, v1alpha1.AnnotationRevision})}
	s.Spec.Replicas, s.Spec.Template = m.Spec.Replicas, m.Spec.Template
	s.Status = m.Status
	s.Status.FailedMachines = nil
	return s
}

func slimDeployment(m *v1alpha1.MachineDeployment) *v1alpha1.MachineDeployment {
	d := &v1alpha1.MachineDeployment{ObjectMeta: slimMeta(m.ObjectMeta, []string{v1alpha1.LabelSlot}, nil)}
	d.Spec, d.Status = m.Spec, m.Status
	d.Status.FailedMachines = nil
	return d
}

// slimClass keeps the zone, and the suspicions about orphans.
func slimClass(m *v1alpha1.MachineClass) *v1alpha1.MachineClass {
	c := &v1alpha1.MachineClass{ObjectMeta: slimMeta(m.ObjectMeta, nil, []string{v1alpha1.AnnotationOrphans})}
	if m.NodeTemplate != nil {
		c.NodeTemplate = &v1alpha1.NodeTemplate{Zone: m.NodeTemplate.Zone}
	}
	return c
}

// slimLease leaves the annotations out that no view reads, of which the reports of machines are
// large.
func slimLease(l *coordinationv1.Lease) *coordinationv1.Lease {
	slim := &coordinationv1.Lease{ObjectMeta: l.ObjectMeta, Spec: l.Spec}
	slim.Annotations = maps.Clone(l.Annotations)
	for _, key := range []string{v1alpha1.AnnotationCounts, v1alpha1.AnnotationAccounts} {
		delete(slim.Annotations, key)
	}
	return slim
}
