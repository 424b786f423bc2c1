package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	// workers is the MachineDeployment in each namespace, of the class that the lab has created.
	workers, class = "workers", "small"
	// roundLabel of a machine is that of the template that it was created from.
	roundLabel = "round"
)

// landscape is a lab with many target clusters.
type landscape struct {
	o       options
	lab     *harness.Lab
	members []harness.Member
	size    int // machines of each cluster
	round   int // of the templates
	from    harness.AuditPosition
}

func newLandscape(_ context.Context, lab *harness.Lab, o options) (*landscape, error) {
	members, err := lab.Members()
	if err != nil {
		return nil, err
	}
	return &landscape{o: o, lab: lab, members: members, from: harness.AuditPosition{}}, nil
}

// create creates the machines of all clusters.
func (l *landscape) create(ctx context.Context) error {
	l.size = l.o.machines
	took, err := l.change(ctx, l.names(), 0, func(ctx context.Context, namespace string) error {
		d := harness.Deployment(namespace, workers, int32(l.size))
		d.Spec.Template.Spec.Class.Name = class
		d.Spec.Template.Labels = map[string]string{v1alpha1.LabelName: workers, roundLabel: "0"}
		_, err := l.lab.Machines.MachineV1alpha1().MachineDeployments(namespace).Create(ctx, d, metav1.CreateOptions{})
		return err
	})
	if err == nil {
		fmt.Printf("\n%d machines of %d target clusters (%s), by cluster, until all run: %s\n",
			l.size*len(l.members), len(l.members), l.kinds(), took)
	}
	return err
}

// grow adds a machine to the clusters, one cluster after the other with a pause.
func (l *landscape) grow(ctx context.Context, namespaces []string, pause time.Duration, size int) (durations, error) {
	return l.changeTo(ctx, namespaces, pause, size, func(ctx context.Context, namespace string) error {
		return l.patch(ctx, namespace, fmt.Sprintf(`{"spec":{"replicas":%d}}`, size))
	})
}

// roll replaces all machines of all clusters.
func (l *landscape) roll(ctx context.Context) (durations, error) {
	l.round++
	return l.change(ctx, l.names(), 0, func(ctx context.Context, namespace string) error {
		return l.patch(ctx, namespace, fmt.Sprintf(`{"spec":{"template":{"metadata":{"labels":{%q:"%d"}}}}}`, roundLabel, l.round))
	})
}

func (l *landscape) patch(ctx context.Context, namespace, patch string) error {
	_, err := l.lab.Machines.MachineV1alpha1().MachineDeployments(namespace).Patch(ctx, workers, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	return err
}

// change is changeTo for the present size.
func (l *landscape) change(
	ctx context.Context, namespaces []string, pause time.Duration, do func(context.Context, string) error,
) (durations, error) {
	return l.changeTo(ctx, namespaces, pause, l.size, do)
}

// changeTo changes the MachineDeployments of namespaces, one after the other with a pause, and
// returns how long each took until it had size machines of the current template, all of them
// running, and no others.
func (l *landscape) changeTo(
	ctx context.Context, namespaces []string, pause time.Duration, size int, do func(context.Context, string) error,
) (durations, error) {
	ctx, cancel := context.WithTimeout(ctx, harness.Standstill)
	defer cancel()
	api := l.lab.Machines.MachineV1alpha1().Machines(metav1.NamespaceAll)
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	now := map[string]map[string]bool{} // by namespace and name: whether the machine is as desired
	see := func(m *v1alpha1.Machine, gone bool) {
		if now[m.Namespace] == nil {
			now[m.Namespace] = map[string]bool{}
		}
		now[m.Namespace][m.Name] = m.Labels[roundLabel] == fmt.Sprint(l.round) && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning
		if gone {
			delete(now[m.Namespace], m.Name)
		}
	}
	for i := range list.Items {
		see(&list.Items[i], false)
	}
	watcher, err := harness.Watch(ctx, list.ResourceVersion, api.Watch)
	if err != nil {
		return nil, err
	}
	defer watcher.Stop()
	begun, failed := l.begin(ctx, namespaces, pause, do)
	var took durations
	open := map[string]bool{}
	for _, namespace := range namespaces {
		open[namespace] = true
	}
	for len(open) > 0 {
		select {
		case <-ctx.Done():
			return took, fmt.Errorf("%w: %d of %d clusters are as desired", ctx.Err(), len(took), len(namespaces))
		case err := <-failed:
			return took, err
		case event, ok := <-watcher.ResultChan():
			m, isMachine := event.Object.(*v1alpha1.Machine)
			if !ok || !isMachine {
				return took, fmt.Errorf("the watch of machines has ended: %v", event.Object)
			}
			see(m, event.Type == watch.Deleted)
			since, has := begun.Load(m.Namespace)
			if at, _ := since.(time.Time); has && open[m.Namespace] && complete(now[m.Namespace], size) {
				took = append(took, time.Since(at))
				delete(open, m.Namespace)
			}
		}
	}
	return took, nil
}

// begin changes namespaces while the effect is watched, and returns when each was changed.
func (l *landscape) begin(
	ctx context.Context, namespaces []string, pause time.Duration, do func(context.Context, string) error,
) (begun *sync.Map, failed <-chan error) {
	begun = &sync.Map{}
	errs := make(chan error, 1)
	go func() {
		for _, namespace := range namespaces {
			begun.Store(namespace, time.Now())
			if err := do(ctx, namespace); err != nil {
				errs <- fmt.Errorf("change %s: %w", namespace, err)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	}()
	return begun, errs
}

func complete(machines map[string]bool, size int) bool {
	if len(machines) != size {
		return false
	}
	for _, is := range machines {
		if !is {
			return false
		}
	}
	return true
}

// names returns the namespaces of all clusters.
func (l *landscape) names() (all []string) {
	for _, m := range l.members {
		all = append(all, m.Name)
	}
	return all
}

// kinds describes the target clusters.
func (l *landscape) kinds() string {
	light := 0
	for _, m := range l.members {
		if m.IsLight() {
			light++
		}
	}
	return fmt.Sprintf("%d real, %d light", len(l.members)-light, light)
}

// durations of the same change in several clusters.
type durations []time.Duration

// percentile returns the duration that p of a hundred do not exceed.
func (d durations) percentile(p int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d))
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

// String has the median, the 99th percentile and the maximum, in seconds.
func (d durations) String() string {
	return fmt.Sprintf("p50 %.2f s, p99 %.2f s, max %.2f s",
		d.percentile(50).Seconds(), d.percentile(99).Seconds(), d.percentile(100).Seconds())
}
