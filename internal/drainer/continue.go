package drainer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// maxSteps bounds how many actions one pass carries out for a drain, so that the worker can process
// other keys.
const maxSteps = 8

// Task contains what a pass knows of a drain that it continues.
type Task struct {
	Owner   Owner
	Node    *corev1.Node
	Cluster *target.Cluster
	Order   drain.Order
	// Driver has the cloud's names of volumes; nil when there is no driver.
	Driver driver.Driver
	// Pods are those of the Node, if Listed: if they were read in this pass from the API server, after
	// the Node was cordoned.
	Pods   []*corev1.Pod
	Listed bool
	// Cordon marks the Node as unschedulable, and returns it as written; nil when the Node is gone, or
	// another one has its name.
	Cordon func(ctx context.Context) (*corev1.Node, error)
	// Warn reports that pods which could not be evicted were deleted without grace, although the drain
	// is not forced.
	Warn func(ctx context.Context, message string)
}

// Continue carries out the actions of a drain that are possible now. It does not wait: what the
// drain depends on is watched, and a change wakes the owner. It returns a verdict whose action was
// not carried out if the drain has used up maxSteps. isSame is false when the Node is gone or
// another one has its name: whether that one is drained, too, is a new decision. It is one action
// of a pass and not a separate runner.Pass: running out of steps is not a defect here, and its
// result is a verdict that lifecycle.Decide decides on. Errors: the requests, and the end of ctx or
// of the ownership.
func (d *Drain) Continue(ctx context.Context, task Task) (v drain.Verdict, isSame bool, err error) {
	d.afterOutage(task.Order)
	d.goTo(task.Cluster)
	facts := drain.Facts{Settings: d.of.cfg.Settings, Order: task.Order, Node: task.Node, Memory: d.memory}
	if task.Listed {
		facts.Live, facts.Sight, facts.Pods = true, drain.Listed, task.Pods
	}
	begun := d.of.own.Now()
	for range maxSteps {
		facts.Now, facts.Ahead = task.Order.Now.Add(d.of.own.Since(begun)), task.Cluster.Ahead()
		freed := d.observe(ctx, task, &facts)
		v = drain.Decide(facts)
		d.memory, facts.Memory = v.Memory, v.Memory
		klog.FromContext(ctx).V(4).Info("Decided on the drain", "action", v.Do, "pods", len(v.Pods), "attachments", len(v.Attachments))
		d.of.detaches.set(task.Cluster, d.errand, task.Owner.Namespace, v.Moving)
		if v.Do == drain.Rest {
			d.await(task, v, freed)
			if wait := d.ids.wait(d.of.own.Now()); wait > 0 && (v.Wake == 0 || wait < v.Wake) {
				v.Wake = wait
			}
			return v, true, nil
		}
		if err := runner.MayGoOn(ctx); err != nil {
			return v, true, err
		}
		if err := d.step(ctx, task, &facts, v); err != nil || facts.Node == nil {
			return v, facts.Node != nil, err
		}
	}
	return v, true, nil
}

// observe records in the facts what the watches show. A drain that waits until more volumes may
// move passes freed to detaches.await.
func (d *Drain) observe(ctx context.Context, task Task, facts *drain.Facts) (freed int) {
	facts.FreeDetaches, freed = d.of.detaches.free(task.Cluster, task.Owner.Namespace)
	session := d.current()
	if session == nil {
		return freed
	}
	facts.Blind = session.WatchError()
	if session.Show(facts) {
		facts.Volumes.IDs = d.volumeIDs(ctx, task.Driver, facts)
	}
	return freed
}

// step carries out one action of a drain. It sends each request once: retries against an overloaded
// API server would occupy the worker.
func (d *Drain) step(ctx context.Context, task Task, facts *drain.Facts, v drain.Verdict) (err error) {
	ctx = target.Once(ctx)
	switch v.Do {
	case drain.Rest:
	case drain.Cordon:
		facts.Live = false
		facts.Node, err = task.Cordon(ctx)
		return err
	case drain.List:
		pods, err := ListPods(ctx, task.Cluster, task.Node.Name)
		if err != nil {
			return err
		}
		facts.Live, facts.Sight, facts.Pods = true, max(facts.Sight, drain.Listed), pods
	case drain.Watch:
		facts.Sight = drain.Awaited
		begun := d.begin(func() *watchSession {
			return d.of.watches.Begin(task.Cluster, facts.Node.Name, task.Owner.Wake)
		})
		if begun {
			klog.FromContext(ctx).Info("Draining Node", "node", facts.Node.Name, "aim", d.aim)
		}
	case drain.RequestRecount:
		return d.requestRecounts(ctx, task.Cluster.Client, facts, v)
	case drain.Remove:
		return d.remove(ctx, task, facts, v)
	}
	return nil
}

// podsPage is how many pods are in a page of a cluster that belongs to one namespace, since each
// may have thousands of values, and answersWithPods bounds the bytes of all pages.
const podsPage, answersWithPods = 25, 64 << 20

// ListPods reads the pods of a Node from the API server, with what drains need of them.
func ListPods(ctx context.Context, cluster *target.Cluster, node string) (pods []*corev1.Pod, err error) {
	list := cluster.Client.CoreV1().Pods(metav1.NamespaceAll).List
	taken, options := int64(0), OfNode(node)
	if cluster.Name != "" {
		ctx, options.Limit = decode.AtMost(ctx, answersWithPods), podsPage
	}
	what := "the pods of Node " + node
	err = decode.UntilPage(ctx, what, options, list, func(page *corev1.PodList, _ []*decode.Failure) bool {
		for i := range page.Items {
			pod := Trim(&page.Items[i])
			taken += objectcache.SizeOf(pod)
			pods = append(pods, pod)
		}
		return cluster.Name != "" && taken > bytesOfPods
	})
	if err != nil {
		return nil, err
	}
	if cluster.Name != "" && taken > bytesOfPods {
		return nil, fmt.Errorf("list %s: expected pods that take together at most %d MiB of memory, got more", what, int64(bytesOfPods>>20))
	}
	return pods, nil
}

// await registers what the drain waits for; after its end, nothing.
func (d *Drain) await(task Task, v drain.Verdict, freed int) {
	if v.State.Ended() {
		d.of.detaches.forget(d.errand)
		return
	}
	if len(v.Progress.Waiting) > 0 {
		d.of.detaches.await(task.Cluster, d.errand, freed, task.Owner.Wake)
	}
	if session := d.current(); session != nil {
		awaited := map[string]bool{}
		for volume, m := range v.Memory.Volumes {
			awaited[volume] = !m.DetachedSince.IsZero()
		}
		session.Await(awaited)
	}
}
