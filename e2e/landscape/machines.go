package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
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
	// longest is how long a change of all clusters may take.
	longest = 30 * time.Minute
)

// pool is the desired state of a MachineDeployment: a number of machines, of a round of its
// template.
type pool struct{ size, round int }

func bigger(p pool) pool     { return pool{p.size + 1, p.round} }
func smaller(p pool) pool    { return pool{p.size - 1, p.round} }
func rolled(p pool) pool     { return pool{p.size, p.round + 1} }
func the(p pool) pool        { return p }
func (p pool) label() string { return strconv.Itoa(p.round) }

// landscape is a lab with many target clusters.
type landscape struct {
	o       options
	lab     *harness.Lab
	rows    *rows
	members []harness.Member
	from    harness.AuditPosition

	mu    sync.Mutex
	pools map[string]pool // by namespace
}

func newLandscape(lab *harness.Lab, o options) (*landscape, error) {
	members, err := lab.Members()
	if err != nil {
		return nil, err
	}
	l := &landscape{o: o, lab: lab, members: members, from: harness.AuditPosition{}, pools: map[string]pool{}}
	if l.rows, err = newRows(lab.Dir); err != nil {
		return nil, err
	}
	for i, m := range members { // sizes are spread evenly, in an order that mixes real and light clusters
		l.pools[m.Name] = pool{size: o.machines + i*7%max(o.mostMachines-o.machines+1, 1)}
	}
	return l, nil
}

// machines returns how many machines all clusters have.
func (l *landscape) machines() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pools {
		n += p.size
	}
	return n
}

// create creates the machines of all clusters, or finds those of an earlier run.
func (l *landscape) create(ctx context.Context) error {
	api := l.lab.Machines.MachineV1alpha1()
	list, err := api.MachineDeployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list MachineDeployments: %w", err)
	}
	if len(list.Items) > 0 {
		for _, d := range list.Items {
			round, _ := strconv.Atoi(d.Spec.Template.Labels[roundLabel])
			l.pools[d.Namespace] = pool{int(d.Spec.Replicas), round}
		}
		_, err := l.change(ctx, l.names(), 0, the)
		return err
	}
	begun := time.Now()
	took, err := l.changeBy(ctx, l.names(), 0, the, func(ctx context.Context, namespace string, to pool) error {
		d := harness.Deployment(namespace, workers, int32(to.size))
		d.Spec.Template.Spec.Class.Name, d.Spec.RevisionHistoryLimit = class, new(int32(1)) // so that rollouts leave no MachineSets
		d.Spec.Template.Labels = map[string]string{v1alpha1.LabelName: workers, roundLabel: to.label()}
		_, err := api.MachineDeployments(namespace).Create(ctx, d, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	all := time.Since(begun)
	fmt.Printf("\n%d machines of %d target clusters (%s) run after %.1f s; by cluster: %s\n",
		l.machines(), len(l.members), l.kinds(), all.Seconds(), took)
	l.rows.add("create_all_seconds", all.Seconds(), "s")
	l.rows.addDurations("create_cluster", took)
	return nil
}

// write writes the desired state of a MachineDeployment.
func (l *landscape) write(ctx context.Context, namespace string, to pool) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d,"template":{"metadata":{"labels":{%q:%q}}}}}`, to.size, roundLabel, to.label())
	_, err := l.lab.Machines.MachineV1alpha1().MachineDeployments(namespace).Patch(ctx, workers, types.MergePatchType, patch,
		metav1.PatchOptions{})
	return err
}

// change changes the MachineDeployments of namespaces, one after the other with a pause, and
// returns how long each took until it had its machines, all of them running, and no others.
func (l *landscape) change(ctx context.Context, namespaces []string, pause time.Duration, next func(pool) pool) (durations, error) {
	return l.changeBy(ctx, namespaces, pause, next, l.write)
}

// seen is a machine as it was last seen.
type seen struct {
	round string
	runs  bool
}

func (l *landscape) changeBy(
	ctx context.Context, namespaces []string, pause time.Duration, next func(pool) pool, do func(context.Context, string, pool) error,
) (durations, error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	api := l.lab.Machines.MachineV1alpha1().Machines(metav1.NamespaceAll)
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	now := map[string]map[string]seen{} // by namespace and name
	see := func(m *v1alpha1.Machine, gone bool) {
		if now[m.Namespace] == nil {
			now[m.Namespace] = map[string]seen{}
		}
		now[m.Namespace][m.Name] = seen{m.Labels[roundLabel], m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning}
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
	begun, failed := l.begin(ctx, namespaces, pause, next, do)
	open := map[string]time.Time{}
	var took durations
	check := func(namespace string) {
		if at, has := open[namespace]; has && l.pool(namespace).is(now[namespace]) {
			took = append(took, time.Since(at))
			delete(open, namespace)
		}
	}
	for left := len(namespaces); left > 0 || len(open) > 0; {
		select {
		case <-ctx.Done():
			return took, fmt.Errorf("%w: %d of %d clusters are as desired", ctx.Err(), len(took), len(namespaces))
		case err := <-failed:
			return took, err
		case one := <-begun:
			left--
			open[one.namespace] = one.at
			check(one.namespace)
		case event, ok := <-watcher.ResultChan():
			m, isMachine := event.Object.(*v1alpha1.Machine)
			if !ok || !isMachine {
				return took, fmt.Errorf("the watch of machines has ended: %v", event.Object)
			}
			see(m, event.Type == watch.Deleted)
			check(m.Namespace)
		}
	}
	return took, nil
}

func (l *landscape) pool(namespace string) pool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pools[namespace]
}

// next changes the desired state of a namespace, and returns it.
func (l *landscape) next(namespace string, next func(pool) pool) pool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pools[namespace] = next(l.pools[namespace])
	return l.pools[namespace]
}

// begun is a change.
type begun struct {
	namespace string
	at        time.Time
}

// begin changes namespaces while the effect is watched.
func (l *landscape) begin(
	ctx context.Context, namespaces []string, pause time.Duration, next func(pool) pool, do func(context.Context, string, pool) error,
) (changed <-chan begun, failed <-chan error) {
	all, errs := make(chan begun, len(namespaces)), make(chan error, 1)
	go func() {
		for _, namespace := range namespaces {
			at, to := time.Now(), l.next(namespace, next)
			if err := do(ctx, namespace, to); err != nil {
				errs <- fmt.Errorf("change %s: %w", namespace, err)
				return
			}
			all <- begun{namespace, at}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	}()
	return all, errs
}

// is reports whether the machines of a namespace are as desired, and there are no others.
func (p pool) is(machines map[string]seen) bool {
	if len(machines) != p.size {
		return false
	}
	for _, one := range machines {
		if one != (seen{p.label(), true}) {
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
