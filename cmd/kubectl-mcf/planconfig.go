package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	fleetclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/observe"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/plan"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/plan/configs"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/plan/manifest"
)

// planConfigs returns the plan of changes of MachineConfigs and KubeletConfigs.
func (p *program) planConfigs(ctx context.Context, in plan.Input, changes []manifest.Manifest) (plan.Plan, error) {
	_, target, err := p.connect(p)
	if err != nil {
		return plan.Plan{}, err
	}
	if target == nil {
		return plan.Plan{}, fmt.Errorf("a %s is in the target cluster, and --no-target is set; leave it out", changes[0].Kind)
	}
	client, err := fleetclient.NewForConfig(target)
	if err != nil {
		return plan.Plan{}, fmt.Errorf("client of the target cluster: %w", err)
	}
	objects, err := configObjects(ctx, client, in.Snapshot)
	if err != nil {
		return plan.Plan{}, err
	}
	var all []configs.Change
	for _, m := range changes {
		var c configs.Change
		if m.Kind == manifest.MachineConfig {
			c.ConfigBefore, c.ConfigAfter, err = changed(m, objects.MachineConfigs)
		} else {
			c.KubeletBefore, c.KubeletAfter, err = changed(m, objects.KubeletConfigs)
		}
		if err != nil {
			return plan.Plan{}, err
		}
		all = append(all, c)
	}
	return configs.Of(in, objects, all...)
}

// configObjects reads what configurations depend on.
func configObjects(ctx context.Context, client fleetclient.FleetV1alpha1Interface, s view.Snapshot) (o configs.Objects, err error) {
	missing := func(verb, resource string, err error) error {
		return observe.Explain(err, observe.Right{Verb: verb, Resource: resource + "." + fleetv1alpha1.GroupName, Cluster: "target"})
	}
	err1 := decode.EachPage(ctx, "MachineConfigPools", client.MachineConfigPools().List, func(page *fleetv1alpha1.MachineConfigPoolList) {
		o.Pools = append(o.Pools, pointersTo(page.Items)...)
	})
	err2 := decode.EachPage(ctx, "MachineConfigs", client.MachineConfigs().List, func(page *fleetv1alpha1.MachineConfigList) {
		o.MachineConfigs = append(o.MachineConfigs, pointersTo(page.Items)...)
	})
	err3 := decode.EachPage(ctx, "KubeletConfigs", client.KubeletConfigs().List, func(page *fleetv1alpha1.KubeletConfigList) {
		o.KubeletConfigs = append(o.KubeletConfigs, pointersTo(page.Items)...)
	})
	err = errors.Join(missing("list", "machineconfigpools", err1), missing("list", "machineconfigs", err2),
		missing("list", "kubeletconfigs", err3))
	if err != nil {
		return o, err
	}
	var names []string
	for _, pool := range o.Pools {
		names = append(names, pool.Status.CurrentMachineConfig)
	}
	for _, node := range s.Nodes {
		names = append(names, node.Annotations[fleetv1alpha1.DaemonPrefix.CurrentConfig()])
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if name == "" {
			continue
		}
		rendered, err := client.RenderedMachineConfigs().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err): // the plan reports it as unknown
		case err != nil:
			return o, missing("get", "renderedmachineconfigs", err)
		default:
			o.Rendered = append(o.Rendered, rendered)
		}
	}
	o.Controller, err = client.ControllerConfigs().Get(ctx, fleetv1alpha1.ControllerConfigName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		o.Controller, err = nil, nil
	}
	return o, missing("get", "controllerconfigs", err)
}

func pointersTo[T any](items []T) (all []*T) {
	for i := range items {
		all = append(all, &items[i])
	}
	return all
}
