package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	configv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	// configPools of configNodes Nodes each are configured, configShare of them at a time.
	configPools, configNodes, configShare = 10, 100, 10
	// floorConfigWrites are those of the plain loop for a Node: its configuration, and the answers to
	// two requests of its daemon.
	floorConfigWrites = 3
	// configTimeout bounds the creation of the machines, and each roll.
	configTimeout = 15 * time.Minute
)

func configPool(i int) string { return fmt.Sprintf("config-%d", i) }

// measureConfigs rolls a configuration over simulated Nodes in several pools, in a separate lab,
// and then another one by a plain loop.
func measureConfigs(ctx context.Context, dir string, s sample) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*configTimeout)
	defer cancel()
	fmt.Println("Starting a lab with machine configuration")
	lab, err := harness.Up(ctx, harness.Options{
		Dir: filepath.Join(dir, "machineconfig"), Clusters: 2, Replicas: fleetSize, MachineConfiguration: true,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Down(ctx)) }()
	if err := errors.Join(lab.WaitHeld(ctx, slots), lab.Cloud.Set(ctx, settings)); err != nil {
		return err
	}
	const namespace, total = "configs", configPools * configNodes
	if err := lab.Prepare(ctx, namespace, ""); err != nil {
		return err
	}
	for i := range configPools {
		d := harness.Deployment(namespace, configPool(i), configNodes)
		d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{harness.LabelPool: configPool(i)}
		if _, err := lab.Machines.MachineV1alpha1().MachineDeployments(namespace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create MachineDeployment: %w", err)
		}
	}
	if err := lab.Running(ctx, namespace, total); err != nil {
		return err
	}
	if err := pause(ctx, 5*settled); err != nil {
		return err
	}
	position, err := lab.AuditEnd()
	if err != nil {
		return err
	}
	took, err := rollConfigs(ctx, lab, total, func(ctx context.Context) error { return createPools(ctx, lab) })
	if err != nil {
		return err
	}
	if err := pause(ctx, 5*settled); err != nil { // late writes are counted with the roll that caused them
		return err
	}
	requests, err := lab.Requests(position)
	if err != nil {
		return err
	}
	countConfigs(requests, total, s)
	fmt.Print(kinds(requests, total))
	if err := toReplicas(ctx, lab, harness.Pause); err != nil {
		return err
	}
	floor, err := rollConfigs(ctx, lab, total, func(ctx context.Context) error { return configFloor(ctx, lab) })
	if err := errors.Join(err, toReplicas(ctx, lab, harness.Resume)); err != nil {
		return err
	}
	s["config_roll_1000_seconds"] = pair{value: took.Seconds(), floor: floor.Seconds()}
	return nil
}

// createPools creates the pools, with one MachineConfig each.
func createPools(ctx context.Context, lab *harness.Lab) error {
	for i := range configPools {
		err := lab.SetConfig(ctx, configPool(i), "50-"+configPool(i), harness.Ignition([]string{harness.File("/etc/demo", "bench")}, nil))
		if err != nil {
			return err
		}
		pool := harness.NewPool(configPool(i), intstr.FromString(fmt.Sprintf("%d%%", configShare)))
		if _, err := lab.Configs.MachineConfigPools().Create(ctx, pool, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create pool: %w", err)
		}
	}
	return nil
}

// watchConfigs watches the Nodes of all pools.
func watchConfigs(ctx context.Context, lab *harness.Lab) (list *corev1.NodeList, watcher watch.Interface, err error) {
	list, err = lab.Target.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: harness.LabelPool})
	if err != nil {
		return nil, nil, fmt.Errorf("list Nodes: %w", err)
	}
	watcher, err = harness.Watch(ctx, list.ResourceVersion, func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.LabelSelector = harness.LabelPool
		return lab.Target.CoreV1().Nodes().Watch(ctx, o)
	})
	return list, watcher, err
}

// rollConfigs measures how long it takes, from the call of begin on, until all Nodes are done with
// a configuration that they did not have.
func rollConfigs(ctx context.Context, lab *harness.Lab, total int, begin func(context.Context) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, configTimeout)
	defer cancel()
	list, watcher, err := watchConfigs(ctx, lab)
	if err != nil {
		return 0, err
	}
	defer watcher.Stop()
	prefix := configv1alpha1.DaemonPrefix
	before, done := map[string]string{}, map[string]bool{}
	for _, n := range list.Items {
		before[n.Name] = n.Annotations[prefix.CurrentConfig()]
	}
	if len(before) != total {
		return 0, fmt.Errorf("expected %d Nodes in pools, got %d", total, len(before))
	}
	start, began := time.Now(), make(chan error, 1)
	go func() { began <- begin(ctx) }()
	for len(done) < total {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%d of %d Nodes are done: %w", len(done), total, ctx.Err())
		case err := <-began:
			if err != nil {
				return 0, err
			}
			began = nil
		case event, open := <-watcher.ResultChan():
			n, ok := event.Object.(*corev1.Node)
			if !open || !ok {
				return 0, fmt.Errorf("watch Nodes: got %T, open: %t", event.Object, open)
			}
			a := n.Annotations
			if current := a[prefix.CurrentConfig()]; current != before[n.Name] && a[prefix.State()] == string(configv1alpha1.StateDone) {
				done[n.Name] = true
			}
		}
	}
	return time.Since(start), nil
}

// configFloor assigns a configuration to all Nodes, configShare of a hundred in each pool at a
// time, and answers the requests of their daemons. It makes no decisions.
func configFloor(ctx context.Context, lab *harness.Lab) error {
	list, watcher, err := watchConfigs(ctx, lab)
	if err != nil {
		return err
	}
	defer watcher.Stop()
	f := &configLoop{lab: lab, answered: map[string]string{}, free: map[string]chan struct{}{}}
	byPool := map[string][]string{}
	for _, n := range list.Items {
		byPool[n.Labels[harness.LabelPool]] = append(byPool[n.Labels[harness.LabelPool]], n.Name)
		f.free[n.Name] = make(chan struct{})
	}
	var working sync.WaitGroup
	defer working.Wait()
	errs := make(chan error, 3*len(list.Items))
	for _, names := range byPool {
		room := make(chan struct{}, len(names)*configShare/100)
		working.Go(func() {
			for _, name := range names {
				select {
				case <-ctx.Done():
					return
				case room <- struct{}{}:
				}
				working.Go(func() {
					errs <- f.annotate(ctx, name, configv1alpha1.DaemonPrefix.DesiredConfig(), "floor")
					select {
					case <-ctx.Done():
					case <-f.free[name]:
					}
					<-room
				})
			}
		})
	}
	for left := len(list.Items); left > 0; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-errs:
			if err != nil {
				return err
			}
		case event, open := <-watcher.ResultChan():
			n, ok := event.Object.(*corev1.Node)
			if !open || !ok {
				return fmt.Errorf("watch Nodes: got %T, open: %t", event.Object, open)
			}
			if f.see(ctx, n, &working, errs) {
				left--
			}
		}
	}
	return nil
}

// configLoop answers daemons. Its maps are used by one goroutine.
type configLoop struct {
	lab      *harness.Lab
	answered map[string]string        // the last request, by Node
	free     map[string]chan struct{} // closed when the Node is done
}

// see answers the request of a Node's daemon, and reports whether the Node is done now, once.
func (f *configLoop) see(ctx context.Context, n *corev1.Node, working *sync.WaitGroup, errs chan<- error) (isDone bool) {
	prefix := configv1alpha1.DaemonPrefix
	wanted := n.Annotations[prefix.DesiredDrain()]
	if wanted != n.Annotations[prefix.LastAppliedDrain()] && wanted != f.answered[n.Name] {
		f.answered[n.Name] = wanted
		working.Go(func() { errs <- f.annotate(ctx, n.Name, prefix.LastAppliedDrain(), wanted) })
	}
	if n.Annotations[prefix.CurrentConfig()] != "floor" || n.Annotations[prefix.State()] != string(configv1alpha1.StateDone) {
		return false
	}
	select {
	case <-f.free[n.Name]:
		return false
	default:
		close(f.free[n.Name])
		return true
	}
}

func (f *configLoop) annotate(ctx context.Context, node, key, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value)
	if _, err := f.lab.Target.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	return nil
}

// countConfigs counts the fleet's requests by Node.
func countConfigs(requests []harness.Request, total float64, s sample) {
	writes, reads := 0.0, 0.0
	for _, r := range requests {
		switch {
		case !counts(r) || !r.IsFleet():
		case r.IsWrite():
			writes++
		default:
			reads++
		}
	}
	s["config_roll_writes_per_node"] = pair{value: writes / total, floor: floorConfigWrites}
	s["config_roll_reads_per_node"] = pair{value: reads / total}
}
