package main

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// The manifests, as a user in the repository's folder names them.
const (
	classManifest       = "docs/examples/01-class-and-secret.yaml"
	deploymentsManifest = "docs/examples/02-machinedeployments.yaml"
	podsManifest        = "docs/examples/03-pods.yaml"
)

func (d *demo) startLab(ctx context.Context) (err error) {
	d.screen.note("A lab is a Kubernetes control plane, a simulated cloud and the fleet, as local processes.")
	d.lab, err = harness.Up(ctx, harness.Options{Dir: d.dir, Output: &labOutput{screen: d.screen}})
	return err
}

// labOutput passes on what `lab up` says, up to the first empty line: what follows is for those who start labs by hand.
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

func (d *demo) askForMachines(ctx context.Context) error {
	if err := d.kubectlCommand(ctx, "apply", "-f", classManifest, "-f", deploymentsManifest); err != nil {
		return err
	}
	return d.wait(ctx, settled(0))
}

func (d *demo) askForMore(ctx context.Context) error {
	before, err := observe(ctx, d.lab)
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

// showPods tells which pod is where, and has one speak that is a real process.
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
	d.screen.say(whereabouts(d.screen.ink, nodes, podsOf)...)
	for _, n := range nodes {
		if n.Kind == kubeletNode && len(podsOf[n.Name]) > 0 {
			d.screen.note("A pod on a simulated Node is only said to run. One on a real kubelet is a process:")
			return d.kubectlCommand(ctx, "logs", podsOf[n.Name][0])
		}
	}
	return nil
}

func (d *demo) askForFewer(ctx context.Context) error {
	before, err := observe(ctx, d.lab)
	if err != nil {
		return err
	}
	d.screen.note("The fleet does not drain Nodes yet, so the pods go first.")
	if err := d.kubectlCommand(ctx, "delete", "-f", podsManifest); err != nil {
		return err
	}
	if err := d.wait(ctx, podsGone(before.Pods.Running)); err != nil {
		return err
	}
	if err := d.kubectlCommand(ctx, "scale", "mcd", "--all", "--replicas=1"); err != nil {
		return err
	}
	return d.wait(ctx, settled(before.machines()))
}

func (d *demo) askForNone(ctx context.Context) error {
	before, err := observe(ctx, d.lab)
	if err != nil {
		return err
	}
	if err := d.kubectlCommand(ctx, "delete", "--wait=false", "-f", deploymentsManifest, "-f", classManifest); err != nil {
		return err
	}
	return d.wait(ctx, settled(before.machines()))
}

func (d *demo) lookForRest(ctx context.Context) error {
	var found []finding
	err := harness.Eventually(ctx, "nothing is left", func(ctx context.Context) (err error) {
		if found, err = leftovers(ctx, d.lab); err != nil {
			return err
		}
		return anyLeft(found)
	})
	d.screen.say(verdicts(d.screen.ink, found)...)
	return err
}
