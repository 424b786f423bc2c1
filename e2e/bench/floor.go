package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated"
)

// Writes of the plain loop for one machine.
const (
	floorCreateWrites = 5 // Machine, provider ID, Pending, Node, Running
	floorTokenWrites  = 2 // created, removed
	floorDeleteWrites = 6 // Machine, Terminating, Node's condition, cordon without finalizer, Node, Machine's finalizer
)

// floor sends the same calls and writes as the fleet, for all machines at once, without decisions.
type floor struct {
	lab       *harness.Lab
	driver    driver.Driver
	class     *v1alpha1.MachineClass
	namespace string

	mu    sync.Mutex
	ready map[string]chan struct{} // by name of Node
}

// onFloor stops the fleet, so that no other client changes the machines, and runs a function with a
// floor.
func onFloor(ctx context.Context, lab *harness.Lab, namespace string, do func(ctx context.Context, f *floor) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, harness.Standstill)
	defer cancel()
	if err := lab.Prepare(ctx, namespace, ""); err != nil {
		return err
	}
	replicas, err := lab.Replicas(ctx)
	if err != nil {
		return err
	}
	for _, replica := range replicas {
		if err := lab.Do(ctx, replica, harness.Stop); err != nil {
			return err
		}
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		for _, replica := range replicas {
			err = errors.Join(err, lab.Do(ctx, replica, harness.Start), lab.Ready(ctx, replica))
		}
		err = errors.Join(err, lab.WaitHeld(ctx, slots))
	}()
	d, err := simulated.New(simulated.Config{Endpoints: []string{lab.Endpoint("cloudsim")}, UserAgent: fmt.Sprintf("floor/%d", os.Getpid())})
	if err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	f := &floor{lab: lab, driver: d, class: harness.Class(namespace, ""), namespace: namespace, ready: map[string]chan struct{}{}}
	stop, err := f.watchNodes(ctx)
	if err != nil {
		return err
	}
	defer stop()
	return do(ctx, f)
}

// measureFloor creates and deletes all machines at once.
func measureFloor(ctx context.Context, lab *harness.Lab, namespace string, s sample) error {
	note := func(name string, value float64) {
		p := s[name]
		p.floor = value
		s[name] = p
	}
	err := onFloor(ctx, lab, namespace, func(ctx context.Context, f *floor) error {
		created := make([]*v1alpha1.Machine, total)
		start := time.Now()
		if err := f.all(total, func(i int) (err error) { created[i], err = f.create(ctx, i); return err }); err != nil {
			return err
		}
		note("create_100_seconds", time.Since(start).Seconds())
		start = time.Now()
		if err := f.all(total, func(i int) error { return f.delete(ctx, created[i]) }); err != nil {
			return err
		}
		note("delete_100_seconds", time.Since(start).Seconds())
		return nil
	})
	note("create_writes_per_machine", floorCreateWrites)
	note("create_token_writes_per_machine", floorTokenWrites)
	note("delete_writes_per_machine", floorDeleteWrites)
	note("life_writes_per_machine", floorCreateWrites+floorTokenWrites+floorDeleteWrites)
	return err
}

// measureRollFloor creates machines and deletes them one after the other, in one sequence for each
// MachineDeployment.
func measureRollFloor(ctx context.Context, lab *harness.Lab, namespace string) (took time.Duration, err error) {
	err = onFloor(ctx, lab, namespace, func(ctx context.Context, f *floor) error {
		start := time.Now()
		err := f.roll(ctx, 0, deployments, machines)
		took = time.Since(start)
		return err
	})
	return took, err
}

// roll creates machines, of which the first has a number that no other had, and deletes them, one
// after the other in parallel sequences.
func (f *floor) roll(ctx context.Context, first, sequences, machines int) error {
	return f.all(sequences, func(sequence int) (errs error) {
		for i := range machines {
			m, err := f.create(ctx, first+sequence*machines+i)
			if err == nil {
				err = f.delete(ctx, m)
			}
			errs = errors.Join(errs, err)
		}
		return errs
	})
}

// floorParallel is how many machines the floor works on at a time: with 5,000, API servers on two
// cores did not answer within their timeout.
const floorParallel = 1000

// all calls a function n times, floorParallel at a time, and returns the first error.
func (f *floor) all(n int, do func(i int) error) error {
	errs := make([]error, n)
	var running sync.WaitGroup
	free := make(chan struct{}, floorParallel)
	for i := range n {
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			errs[i] = do(i)
		})
	}
	running.Wait()
	return cmp.Or(errs...)
}

// watchNodes records the Nodes that become ready.
func (f *floor) watchNodes(ctx context.Context) (stop func(), err error) {
	nodes := f.lab.Target.CoreV1().Nodes()
	list, err := nodes.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	watcher, err := harness.Watch(ctx, list.ResourceVersion, nodes.Watch)
	if err != nil {
		return nil, err
	}
	go func() {
		for event := range watcher.ResultChan() {
			node, ok := event.Object.(*corev1.Node)
			if !ok {
				continue
			}
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
					f.note(node.Name)
				}
			}
		}
	}()
	return watcher.Stop, nil
}

func (f *floor) note(node string) {
	ready := f.readiness(node)
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-ready:
	default:
		close(ready)
	}
}

func (f *floor) readiness(node string) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ready[node] == nil {
		f.ready[node] = make(chan struct{})
	}
	return f.ready[node]
}

func (f *floor) create(ctx context.Context, i int) (*v1alpha1.Machine, error) {
	api := f.lab.Machines.MachineV1alpha1().Machines(f.namespace)
	m, err := api.Create(ctx, &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%03d", f.namespace, i), Finalizers: []string{v1alpha1.FinalizerName}},
		Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: harness.ClassName}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	}
	id := fmt.Sprintf("%06x", (os.Getpid()*1000+i)%(1<<24))
	token := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id}, Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"},
	}
	secrets := f.lab.Target.CoreV1().Secrets(metav1.NamespaceSystem)
	if _, err := secrets.Create(ctx, token, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	}
	userData := strings.ReplaceAll(harness.UserData, v1alpha1.PlaceholderBootstrapToken, id+".0123456789abcdef")
	vm, err := f.driver.CreateMachine(ctx, driver.CreateMachineRequest{
		Target: driver.Target{Machine: m, Class: f.class}, UserData: []byte(userData),
	})
	if err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	}
	m.Spec.ProviderID = vm.ProviderID
	err = errors.Join(
		f.patch(ctx, m, fmt.Sprintf(`{"metadata":{"labels":{"node":%q}},"spec":{"providerID":%q}}`, vm.NodeName, vm.ProviderID)),
		f.patch(ctx, m, `{"status":{"currentStatus":{"phase":"Pending"}}}`, "status"),
	)
	if err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("floor: wait for Node %s: %w", vm.NodeName, ctx.Err())
	case <-f.readiness(vm.NodeName):
	}
	err = errors.Join(
		f.patchNode(ctx, m.Name,
			fmt.Sprintf(`{"metadata":{"finalizers":[%q],"labels":{%q:%q}}}`, v1alpha1.NodeFinalizerName, v1alpha1.LabelMachineName, m.Name)),
		secrets.Delete(ctx, token.Name, metav1.DeleteOptions{}),
		f.patch(ctx, m, `{"status":{"currentStatus":{"phase":"Running"}}}`, "status"),
	)
	return m, err
}

func (f *floor) delete(ctx context.Context, m *v1alpha1.Machine) error {
	api := f.lab.Machines.MachineV1alpha1().Machines(f.namespace)
	err := errors.Join(
		api.Delete(ctx, m.Name, metav1.DeleteOptions{}),
		f.patchNode(ctx, m.Name, fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"True"}]}}`, v1alpha1.NodeTerminating), "status"),
		f.patch(ctx, m, `{"status":{"currentStatus":{"phase":"Terminating"}}}`, "status"),
		f.patchNode(ctx, m.Name, `{"metadata":{"finalizers":null},"spec":{"unschedulable":true}}`),
	)
	if err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	onNode := metav1.ListOptions{FieldSelector: "spec.nodeName=" + m.Name}
	if _, err := f.lab.Target.CoreV1().Pods(metav1.NamespaceAll).List(ctx, onNode); err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	if _, err := f.driver.DeleteMachine(ctx, driver.DeleteMachineRequest{Target: driver.Target{Machine: m, Class: f.class}}); err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	// The cloud controller may have been first.
	if err := f.lab.Target.CoreV1().Nodes().Delete(ctx, m.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("floor: %w", err)
	}
	return f.patch(ctx, m, `{"metadata":{"finalizers":null}}`)
}

func (f *floor) patch(ctx context.Context, m *v1alpha1.Machine, patch string, subresource ...string) error {
	_, err := f.lab.Machines.MachineV1alpha1().Machines(f.namespace).
		Patch(ctx, m.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...)
	if err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	return nil
}

func (f *floor) patchNode(ctx context.Context, name, patch string, subresource ...string) error {
	_, err := f.lab.Target.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{}, subresource...)
	if err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	return nil
}
