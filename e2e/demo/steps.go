package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// The manifests, as a user in the repository's folder names them.
const (
	classManifest       = "docs/examples/01-class-and-secret.yaml"
	deploymentsManifest = "docs/examples/02-machinedeployments.yaml"
	podsManifest        = "docs/examples/03-pods.yaml"
	configManifest      = "docs/examples/04-machine-configuration.yaml"
)

func (d *demo) startLab(ctx context.Context) (err error) {
	d.screen.note("A lab is a Kubernetes control plane, a simulated cloud and the fleet, as local processes.")
	d.lab, err = harness.Up(ctx, harness.Options{
		Dir: d.dir, Replicas: d.replicas, Tracing: d.tracing, Output: &labOutput{screen: d.screen},
		MachineConfiguration: true, DaemonFlags: "--health-timeout=1m",
	})
	if err != nil {
		return err
	}
	d.screen.note("%s    # the whole fleet in a browser, until the demo ends", d.page())
	d.leases, err = follow(context.WithoutCancel(ctx), d.lab) // for all steps, not only this one
	return err
}

// page returns the address of the page of the fleet. Any replica serves it.
func (d *demo) page() string { return d.lab.Endpoint(harness.Fleet) + "/page/" }

func (d *demo) shareTheWork(ctx context.Context) error {
	d.screen.note("All objects are divided into %d slots, and a replica reconciles only those in slots that it holds.", slots)
	d.screen.note("A new slot is in quarantine for 15 s, since a session may hold an earlier Lease of it.")
	return d.wait(ctx, shared(d.replicas))
}

// labOutput prints the output of `lab up`, up to the first empty line: the rest is for users who
// start labs by hand.
type labOutput struct {
	screen *screen
	rest   string
	ended  bool
}

func (o *labOutput) Write(text []byte) (int, error) {
	o.rest += string(text)
	for !o.ended {
		line, rest, found := strings.Cut(o.rest, "\n")
		if !found {
			break
		}
		o.rest, o.ended = rest, line == ""
		o.screen.quote(line)
	}
	return len(text), nil
}

func (d *demo) createMachines(ctx context.Context) error {
	if err := d.kubectlCommand(ctx, "apply", "-f", classManifest, "-f", deploymentsManifest); err != nil {
		return err
	}
	return d.wait(ctx, settled(0))
}

func (d *demo) scaleUp(ctx context.Context) error {
	before, err := observe(ctx, d.lab, d.leases)
	if err != nil {
		return err
	}
	if err := d.kubectlCommand(ctx, "scale", "mcd/workers-a", "mcd/workers-b", "--replicas=5"); err != nil {
		return err
	}
	if err := d.kubectlCommand(ctx, "scale", "mcd/kubelets-a", "--replicas=2"); err != nil {
		return err
	}
	return d.wait(ctx, settled(before.machines()))
}

func (d *demo) runPods(ctx context.Context) error {
	if err := d.kubectlCommand(ctx, "apply", "-f", podsManifest); err != nil {
		return err
	}
	if err := d.wait(ctx, podsRun()); err != nil {
		return err
	}
	return d.showPods(ctx)
}

// showPods prints the Node of each pod, and the log of one that is a real process.
func (d *demo) showPods(ctx context.Context) error {
	nodes, err := observeNodes(ctx, d.lab)
	if err != nil {
		return err
	}
	list, err := d.lab.Target.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	podsOf := map[string][]string{}
	for _, pod := range list.Items {
		podsOf[pod.Spec.NodeName] = append(podsOf[pod.Spec.NodeName], pod.Name)
	}
	d.screen.print(whereabouts(d.screen.ink, nodes, podsOf)...)
	for _, n := range nodes {
		if n.Kind == kubeletNode && len(podsOf[n.Name]) > 0 {
			d.screen.note("A pod on a simulated Node has no process. One on a real kubelet has one:")
			return d.kubectlCommand(ctx, "logs", podsOf[n.Name][0])
		}
	}
	return nil
}

// kubelets is the MachineDeployment whose Nodes are configured.
const kubelets = "kubelets-a"

func (d *demo) configureMachines(ctx context.Context) error {
	before, err := observe(ctx, d.lab, d.leases)
	if err != nil {
		return err
	}
	d.screen.note("A pool brings running machines to a configuration: a Node is drained, the daemon on it changes files, and it reboots.")
	if err := d.kubectlCommand(ctx, "apply", "-f", configManifest); err != nil {
		return err
	}
	if err := d.wait(ctx, configured(before.machinesOf(kubelets))); err != nil {
		return err
	}
	return d.kubectlCommand(ctx, "get", "nodes", "-o", "custom-columns=NODE:.metadata.name,MAX-PODS:.status.capacity.pods")
}

func (d *demo) killAndComeBack(ctx context.Context) error {
	before, victim, err := d.choose(ctx)
	if err != nil {
		return err
	}
	d.screen.note("Its kubelet restarts it. The new process proves that the old one is gone, and takes its slots back.")
	goal := heldBy(replicaNames(d.replicas), victim.Session).undisturbed(before)
	return d.labCommand(ctx, goal, "crash", victim.Name)
}

func (d *demo) addReplicas(ctx context.Context) error {
	before, err := observe(ctx, d.lab, d.leases)
	if err != nil {
		return err
	}
	d.screen.note("Each new replica gets one slot, and its share once that is open. The old holder of a slot finishes its passes, " +
		"then releases it.")
	return d.scaleFleet(ctx, before, d.replicas+2)
}

func (d *demo) removeReplica(ctx context.Context) error {
	before, err := observe(ctx, d.lab, d.leases)
	if err != nil {
		return err
	}
	d.screen.note("It hands its slots over before it ends.")
	return d.scaleFleet(ctx, before, d.replicas+1)
}

func (d *demo) scaleFleet(ctx context.Context, before picture, replicas int) error {
	return d.labCommand(ctx, shared(replicas).undisturbed(before), "scale", strconv.Itoa(replicas))
}

func (d *demo) loseReplica(ctx context.Context) error {
	before, victim, err := d.choose(ctx)
	if err != nil {
		return err
	}
	d.followed = before.machineOf(victim)
	others := slices.DeleteFunc(replicaNames(d.replicas+1), func(name string) bool { return name == victim.Name })
	d.screen.note("Its Lease is not renewed any more. The others take over after 15 s.")
	return d.labCommand(ctx, heldBy(others, victim.Session).undisturbed(before), "kill", victim.Name)
}

// showLife stops the owner of a machine that was taken over before, and shows the life of that
// machine, as Jaeger returns it.
func (d *demo) showLife(ctx context.Context) error {
	before, err := observe(ctx, d.lab, d.leases)
	if err != nil {
		return err
	}
	owner := before.ownerOf(d.followed)
	var others []string
	for _, r := range before.Fleet.Replicas {
		if r.Name != owner.Name {
			others = append(others, r.Name)
		}
	}
	if len(others) > 0 {
		d.screen.note("It hands its slots over, with that of a machine that was taken over before.")
		if err := d.labCommand(ctx, heldBy(others, owner.Session).undisturbed(before), "stop", owner.Name); err != nil {
			return err
		}
	}
	now, err := observe(ctx, d.lab, d.leases)
	if err != nil {
		return err
	}
	d.screen.note("Each replica sends the spans of its passes to Jaeger. Read back, those of one machine are its life, by all of its owners.")
	d.screen.command("lab trace " + d.followed)
	tree, err := d.tools.answer(ctx, "trace", d.followed, fmt.Sprintf("--until-epoch=%d", now.epochOf(d.followed)))
	d.screen.quote(tree)
	return err
}

// choose observes the lab, and chooses a replica to kill.
func (d *demo) choose(ctx context.Context) (picture, replica, error) {
	p, err := observe(ctx, d.lab, d.leases)
	if err != nil {
		return picture{}, replica{}, err
	}
	victim, err := p.Fleet.busiest()
	return p, victim, err
}

func (d *demo) scaleDown(ctx context.Context) error {
	before, err := observe(ctx, d.lab, d.leases)
	if err != nil {
		return err
	}
	d.screen.note("A Node is drained before its VM is deleted: its pods are evicted, and recreated elsewhere.")
	if err := d.kubectlCommand(ctx, "scale", "mcd", "--all", "--replicas=1"); err != nil {
		return err
	}
	if err := d.wait(ctx, settled(before.machines())); err != nil {
		return err
	}
	return d.wait(ctx, podsRun())
}

func (d *demo) deleteAll(ctx context.Context) error {
	before, err := observe(ctx, d.lab, d.leases)
	if err != nil {
		return err
	}
	if err := d.kubectlCommand(ctx, "delete", "-f", podsManifest); err != nil {
		return err
	}
	if err := d.wait(ctx, podsGone(before.Pods.Running)); err != nil {
		return err
	}
	if err := d.kubectlCommand(ctx, "delete", "--wait=false", "-f", deploymentsManifest, "-f", classManifest); err != nil {
		return err
	}
	if err := d.wait(ctx, settled(before.machines())); err != nil {
		return err
	}
	return d.kubectlCommand(ctx, "delete", "-f", configManifest)
}

func (d *demo) lookForRest(ctx context.Context) error {
	if !d.isLandscape() {
		d.screen.note("A MachineClass is removed last: every 5 s its holder checks whether a machine uses it.")
	}
	var found []finding
	err := harness.Eventually(ctx, "nothing is left", func(ctx context.Context) (err error) {
		search := leftovers
		if d.isLandscape() {
			search = d.landscape.leftovers
		}
		if found, err = search(ctx, d.lab); err != nil {
			return err
		}
		return anyRemaining(found)
	})
	d.screen.print(verdicts(d.screen.ink, found)...)
	return err
}
