package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/chaos/check"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

const landscapeManifest = "docs/examples/landscape.yaml"

// landscape has the target clusters of a run with many of them.
type landscape struct {
	members []harness.Member
	clients map[string]kubernetes.Interface // by the name of a member
}

func (d *demo) isLandscape() bool { return d.clusters > 2 || d.light > 0 }

// landscapeSteps are the steps of a run with many target clusters.
func (d *demo) landscapeSteps() []step {
	steps := []step{
		{"Start a lab with many target clusters", d.startLandscape},
		{"Distribute the slots", d.shareTheWork},
		{"Create machines in each cluster", d.createInAll},
		{"Rotate the credentials of one", d.rotateOne},
		{"Cut one off", d.cutOne},
	}
	if d.keep {
		return steps
	}
	return append(steps, step{"Delete all", d.deleteInAll}, step{"Check for leftovers", d.lookForRest})
}

func (d *demo) startLandscape(ctx context.Context) (err error) {
	d.screen.note("%d target clusters have a real API server, %d a light one, in memory. Each has its own CA and credentials,",
		d.clusters, d.light)
	d.screen.note("and belongs to a namespace of the control cluster.")
	d.lab, err = harness.Up(ctx, harness.Options{
		Dir: d.dir, Replicas: d.replicas, Clusters: d.clusters, Light: d.light, Output: &labOutput{screen: d.screen},
	})
	if err != nil {
		return err
	}
	d.screen.note("%s    # the whole fleet in a browser, until the demo ends", d.page())
	d.landscape.clients = map[string]kubernetes.Interface{}
	if d.landscape.members, err = d.lab.Members(); err != nil {
		return err
	}
	for _, m := range d.landscape.members {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(d.dir, "targets", m.Name+".kubeconfig"))
		if err != nil {
			return fmt.Errorf("target cluster %s: %w", m.Name, err)
		}
		if d.landscape.clients[m.Name], err = kubernetes.NewForConfig(config); err != nil {
			return fmt.Errorf("target cluster %s: %w", m.Name, err)
		}
	}
	d.leases, err = follow(context.WithoutCancel(ctx), d.lab)
	return err
}

// observe takes a picture of the lab.
func (d *demo) observe(ctx context.Context) (picture, error) {
	if len(d.landscape.members) == 0 {
		return observe(ctx, d.lab, d.leases)
	}
	return d.landscape.observe(ctx, d.lab, d.leases)
}

// observe takes a picture in which each target cluster is a MachineDeployment. Errors: a Node is in
// another cluster than that of its machine.
func (l landscape) observe(ctx context.Context, lab *harness.Lab, leases *follower) (picture, error) {
	var p picture
	api := lab.Machines.MachineV1alpha1()
	wishes, err := api.MachineDeployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return p, fmt.Errorf("list MachineDeployments: %w", err)
	}
	list, err := api.Machines(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return p, fmt.Errorf("list Machines: %w", err)
	}
	for _, m := range l.members {
		one := deployment{Name: m.Name, Phases: map[v1alpha1.MachinePhase]int{}}
		for _, w := range wishes.Items {
			if w.Namespace == m.Name && w.DeletionTimestamp == nil {
				one.Desired = int(w.Spec.Replicas)
			}
		}
		known := map[string]bool{}
		for _, machine := range list.Items {
			if machine.Namespace == m.Name {
				one.Phases[machine.Status.CurrentStatus.Phase]++
				known[machine.Name] = true
			}
		}
		p.Deployments = append(p.Deployments, one)
		nodes, err := l.clients[m.Name].CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return p, fmt.Errorf("list Nodes of %s: %w", m.Name, err)
		}
		for _, n := range nodes.Items {
			p.Nodes = append(p.Nodes, node{
				Name: n.Name, Zone: n.Labels[corev1.LabelTopologyZone], Kind: simulatedNode, Ready: isReady(&n) && known[n.Name],
			})
		}
	}
	for _, m := range list.Items {
		p.Machines = append(p.Machines, machine{
			Name: m.Namespace + "/" + m.Name, Phase: m.Status.CurrentStatus.Phase, Slot: m.Labels[v1alpha1.LabelSlot],
		})
	}
	p.Fleet = leases.fleet(p.Machines)
	vms, err := lab.Cloud.AllVMs(ctx)
	for _, v := range vms {
		if v.State != cloudapi.StateTerminated {
			p.VMs = append(p.VMs, vm{Zone: v.Zone, State: v.State})
		}
	}
	return p, err
}

// inEach runs a command of kubectl in the namespaces of target clusters.
func (d *demo) inEach(ctx context.Context, of []harness.Member, args ...string) error {
	for _, m := range of {
		if err := d.kubectlCommand(ctx, append([]string{"-n", m.Name}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) createInAll(ctx context.Context) error {
	d.screen.note("A VM joins the cluster that its user data names.")
	if err := d.inEach(ctx, d.landscape.members, "apply", "-f", landscapeManifest); err != nil {
		return err
	}
	return d.wait(ctx, settled(0))
}

func (d *demo) rotateOne(ctx context.Context) error {
	before, err := d.observe(ctx)
	if err != nil {
		return err
	}
	one := d.landscape.members[0]
	d.screen.note("The Secret of its namespace gets other credentials, which are used for the next request.")
	d.screen.command("lab rotate " + one.Name)
	if err := d.tools.manage(ctx, "rotate", one.Name); err != nil {
		return err
	}
	if err := d.inEach(ctx, []harness.Member{one}, "scale", "mcd/workers", "--replicas=4"); err != nil {
		return err
	}
	return d.wait(ctx, settled(before.machines()))
}

func (d *demo) cutOne(ctx context.Context) error {
	before, err := d.observe(ctx)
	if err != nil {
		return err
	}
	others := slices.Clone(d.landscape.members)
	off := others[len(others)-1]
	others = others[:len(others)-1]
	d.screen.note("The fleet loses its connection to %s. The other clusters go on.", off.Name)
	d.screen.command("lab cut " + off.Name)
	if err := d.tools.manage(ctx, "cut", off.Name); err != nil {
		return err
	}
	if err := d.inEach(ctx, d.landscape.members, "scale", "mcd/workers", "--replicas=5"); err != nil {
		return err
	}
	if err := d.wait(ctx, runIn(others)); err != nil {
		return err
	}
	d.screen.note("Those of %s wait until it is back.", off.Name)
	d.screen.command("lab heal " + off.Name)
	if err := d.tools.manage(ctx, "heal", off.Name); err != nil {
		return err
	}
	return d.wait(ctx, settled(before.machines()))
}

// runIn is reached when the machines of these clusters run.
func runIn(some []harness.Member) goal {
	return goal{facts: picture.machineFacts, reach: func(p picture) progress {
		now := progress{What: "machines of " + strconv.Itoa(len(some)) + " clusters run"}
		for _, one := range p.Deployments {
			if slices.ContainsFunc(some, func(m harness.Member) bool { return m.Name == one.Name }) {
				now.Done += min(one.Phases[v1alpha1.MachineRunning], one.Desired)
				now.Total += one.Desired
			}
		}
		now.Reached = now.Done == now.Total
		return now
	}}
}

func (d *demo) deleteInAll(ctx context.Context) error {
	before, err := d.observe(ctx)
	if err != nil {
		return err
	}
	if err := d.inEach(ctx, d.landscape.members, "delete", "--wait=false", "mcd/workers"); err != nil {
		return err
	}
	return d.wait(ctx, settled(before.machines()))
}

// leftovers searches for all objects that the fleet or its user has created, in all clusters. The
// classes are the lab's.
func (l landscape) leftovers(ctx context.Context, lab *harness.Lab) ([]finding, error) {
	api := lab.Machines.MachineV1alpha1()
	deployments, errDeployments := api.MachineDeployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	sets, errSets := api.MachineSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	machines, errMachines := api.Machines(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	vms, errVMs := lab.Cloud.AllVMs(ctx)
	calls, errCalls := lab.Cloud.Calls()
	errs := errors.Join(errDeployments, errSets, errMachines, errVMs, errCalls)
	var nodes, tokens []string
	for _, m := range l.members {
		core := l.clients[m.Name].CoreV1()
		found, errNodes := core.Nodes().List(ctx, metav1.ListOptions{})
		secrets, errTokens := core.Secrets(metav1.NamespaceSystem).
			List(ctx, metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken)})
		if errs = errors.Join(errs, errNodes, errTokens); errs != nil {
			break
		}
		nodes, tokens = append(nodes, names(found.Items)...), append(tokens, names(secrets.Items)...)
	}
	if errs != nil {
		return nil, fmt.Errorf("check for leftovers: %w", errs)
	}
	remaining, twice := remainingVMs(vms)
	report := check.Check(check.History{Calls: calls})
	return []finding{
		{Kind: "MachineDeployments", Remaining: names(deployments.Items)},
		{Kind: "MachineSets", Remaining: names(sets.Items)},
		{Kind: "Machines", Remaining: names(machines.Items)},
		{Kind: "Nodes in all clusters", Remaining: nodes},
		{Kind: "bootstrap tokens in all clusters", Remaining: tokens},
		{Kind: "VMs at the cloud", Note: fmt.Sprintf("%d were created, %d have ended", len(vms), len(vms)-len(remaining)), Remaining: remaining},
		{Kind: "machines with a second VM", Remaining: twice},
		{
			Kind:      "calls to the cloud that had an effect twice, or under no slot",
			Note:      fmt.Sprintf("%d by %s", report.Calls, several(report.Sessions, "session")),
			Remaining: report.Faults,
		},
	}, nil
}
