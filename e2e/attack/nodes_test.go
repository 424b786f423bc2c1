//go:build e2e

package attack

import (
	"context"
	"fmt"
	"path"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// forge creates a Machine with a Node and a VM, and with a status of one that runs if the tenant
// may write it.
func (a *tenant) forge(name, node, providerID string) {
	a.Helper()
	a.machine(name, harness.ClassName, func(m *v1alpha1.Machine) {
		m.Labels = map[string]string{v1alpha1.LabelNode: node, v1alpha1.LabelForceDeletion: "True"}
		m.Finalizers = []string{v1alpha1.FinalizerName}
		m.Spec.ProviderID = providerID
		m.Spec.NodeTemplateSpec.Labels = map[string]string{"forged": "yes"}
	})
	if !a.writesStatus {
		return
	}
	status := []byte(`{"status":{"currentStatus":{"phase":"Running"},"lastOperation":{"type":"Create","state":"Successful"}}}`)
	_, err := a.api.Machines(a.namespace).Patch(a.ctx, name, types.MergePatchType, status, metav1.PatchOptions{}, "status")
	a.must(err)
}

// event waits for an Event about a Machine whose message contains some words.
func (a *tenant) event(machine, reason string, words ...string) {
	a.Helper()
	a.eventually(fmt.Sprintf("an Event %s about machine %s contains %q", reason, machine, words), func(ctx context.Context) error {
		list, err := a.lab.Control.EventsV1().Events(a.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var notes []string
		for _, e := range list.Items {
			if e.Regarding.Name != machine || e.Reason != reason {
				continue
			}
			missing := 0
			for _, word := range words {
				if !strings.Contains(e.Note, word) {
					missing++
				}
			}
			if missing == 0 {
				return nil
			}
			notes = append(notes, e.Note)
		}
		return fmt.Errorf("its Events with that reason are %q", notes)
	})
}

// nodeOfAnotherMachine forges Machines with the Node and the VM of the victim, and deletes them by
// force.
func nodeOfAnotherMachine(a *tenant) {
	victim := a.victim.machines[0]
	id := victim.Spec.ProviderID
	exact := a.named("exact")
	forged := map[string]string{
		exact:                   id,
		a.named("last-element"): "other:///" + path.Base(id),
		a.named("other-zone"):   strings.Replace(id, "sim-1a", "sim-1b", 1),
		victim.Name:             id,
	}
	for name, providerID := range forged {
		a.forge(name, nodeOf(&victim), providerID)
	}
	for name := range forged {
		a.remove(name)
		a.event(name, v1alpha1.EventNotOwned, "Node", nodeOf(&victim), "left alone")
	}
	a.event(exact, v1alpha1.EventNotOwned, "VM", id, "left alone")
	for name := range forged {
		a.gone(name)
	}
}

// unmanagedNode forges Machines with Nodes that no machine has ever had: one has no provider ID, as
// those of control planes.
func unmanagedNode(a *tenant) {
	id := a.victim.vm.ProviderID
	without, own, with := a.named("without-id"), a.named("with-its-own-id"), a.named("with-id")
	a.forge(without, controlPlane, "")
	a.forge(own, controlPlane, cloudapi.ProviderIDPrefix+"sim-1/sim-1a/i-none")
	a.forge(with, joinedVM, id)
	for _, name := range []string{without, own, with} {
		a.remove(name)
	}
	a.event(own, v1alpha1.EventNotOwned, "Node", controlPlane, "left alone")
	a.event(with, v1alpha1.EventNotOwned, "Node", joinedVM, "left alone")
	for _, name := range []string{without, own, with} {
		a.gone(name)
	}
}

// forgedTakeOver creates Machines for VMs like those of Machine Controller Manager, without the UID
// of any Machine. One is of the attacker's namespace, and is taken over; the others are not.
func forgedTakeOver(a *tenant) {
	created := map[string]cloudapi.Instance{}
	for name, tags := range map[string]map[string]string{
		"mine":              {simulated.TagMachine: "mine", simulated.TagCluster: a.namespace},
		"of-the-victim":     {simulated.TagMachine: "of-the-victim", simulated.TagCluster: victimNamespace},
		"of-another-name":   {simulated.TagMachine: "another-name", simulated.TagCluster: a.namespace},
		"without-a-machine": {},
		"with-a-uid":        {simulated.TagMachine: "with-a-uid", simulated.TagCluster: a.namespace, simulated.TagMachineUID: "another"},
	} {
		vm, err := a.lab.Cloud.Create(a.ctx, cloudapi.CreateInstanceRequest{Name: name, Tags: tags})
		a.must(err)
		created[name] = vm
		a.forge(name, name, vm.ProviderID)
	}
	for name := range created {
		a.remove(name)
	}
	for name := range created {
		a.gone(name)
	}
	vms, err := a.lab.Cloud.AllVMs(a.ctx)
	a.must(err)
	for _, vm := range vms {
		for name, before := range created {
			ends := vm.State == cloudapi.StateStopping || vm.State == cloudapi.StateTerminated
			if vm.ID == before.ID && ends != (name == "mine") {
				a.Errorf("VM %q is %s", name, vm.State)
			}
		}
	}
}
