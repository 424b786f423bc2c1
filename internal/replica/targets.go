package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	fleetclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/access"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/bynamespace"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/requests"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// findTargets sets how machines find their target clusters. Errors: invalid options.
func (d *deps) findTargets(around Environment, spread assignment.Spread) (err error) {
	// Half of the workers of a controller: the other half is for target clusters that answer.
	budgets, err := requests.New(requests.Config{Total: max(runner.TenantsAtOnce*d.o.ConcurrentSyncs/2, 1), Clock: around.Clock})
	if err != nil {
		return err
	}
	around.Registry.MustRegister(budgets.Collectors()...)
	switch {
	case d.o.Targets.ByNamespace:
		if spread.By() != assignment.ByNamespace {
			return fmt.Errorf("targets by namespace: expected work to be divided by %s, got %s; a target cluster has one owner",
				assignment.ByNamespace, spread.By())
		}
		d.byNamespace, err = newTargetsByNamespace(d, around, spread, budgets)
		d.targets = d.byNamespace
	case d.target == nil:
		d.targets = target.None{}
	default:
		d.cluster = target.New(d.target)
		d.cluster.Reach = d.known(d.targetServer, d.targetWall)
		d.cluster.Lead = func() time.Duration { return d.targetWall.AheadOf(d.wall) }
		d.targets = target.Single{Cluster: d.cluster}
	}
	around.Registry.MustRegister(bynamespace.Collect(d.byNamespace)...)
	return err
}

// newTargetsByNamespace returns the target clusters of namespaces, each of which is open while this
// replica has machines of its namespace.
func newTargetsByNamespace(d *deps, around Environment, spread assignment.Spread, budgets *requests.Budgets) (*bynamespace.Targets, error) {
	identities := &targetIdentities{d: d, spread: spread}
	targets, err := bynamespace.New(bynamespace.Config{
		Secrets: d.control.CoreV1(), Select: d.o.Targets.Select, Policy: access.Policy{Refused: d.o.Targets.Refused},
		Connect: func(namespace string, config *rest.Config, wrap transport.WrapperFunc) (*bynamespace.Link, error) {
			return d.link(around, namespace, config, wrap)
		},
		Budgets:  budgets,
		Identify: identities.identify, BlindAfter: d.o.Fleet.Durations.BlindAfter, OutageAfter: d.o.Safety.StatusCheckTimeout,
		Clock: around.Clock,
	})
	if err != nil {
		return nil, err
	}
	return targets, nil
}

// targetUsers keep the target clusters of namespaces open in which this replica has Machines, and
// which the fleet serves.
type targetUsers struct {
	targets *bynamespace.Targets
	serves  func(namespace string) bool

	mu       sync.Mutex
	machines map[string]int  // by namespace
	using    map[string]bool // namespaces whose target is in use
}

// linkTargets has targets opened and closed.
func (d *deps) linkTargets() {
	users := &targetUsers{targets: d.byNamespace, machines: map[string]int{}, using: map[string]bool{}}
	users.serves = func(namespace string) bool {
		return d.slots.switches.IsOn(namespace) && d.slots.namespaces.Serves(namespace)
	}
	d.targetUsers = users
	d.slots.namespaces.OnChange(users.changed)
	d.view.Machines.OnChange(func(before, after *v1alpha1.Machine) {
		switch {
		case before == nil:
			users.count(after.Namespace, 1)
		case after == nil:
			users.count(before.Namespace, -1)
		}
	})
}

func (u *targetUsers) count(namespace string, more int) {
	u.mu.Lock()
	if u.machines[namespace] += more; u.machines[namespace] == 0 {
		delete(u.machines, namespace)
	}
	u.mu.Unlock()
	u.changed(namespace)
}

// changed begins or ends the use of the target of a namespace.
func (u *targetUsers) changed(namespace string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch use := u.machines[namespace] > 0 && u.serves(namespace); {
	case use == u.using[namespace]:
	case use:
		u.using[namespace] = true
		u.targets.Use(namespace)
	default:
		delete(u.using, namespace)
		u.targets.Leave(namespace)
	}
}

// link returns a target cluster whose requests pass the Fence. Errors: an invalid configuration.
func (d *deps) link(around Environment, namespace string, config *rest.Config, wrap transport.WrapperFunc) (*bynamespace.Link, error) {
	wall := apianswers.NewClock(around.Clock, "target of "+namespace)
	if around.TargetTransport != nil {
		config.Transport = around.TargetTransport(config.Host)
	}
	config, err := guarded(config, d.session.fence, targetName, wall)
	if err != nil {
		return nil, err
	}
	server, err := targetServer(config, "target of "+namespace, d.o.checks(), around.Clock)
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.Wrap(server.Wrap)
	config.Wrap(wrap) // above the checks, which are sent at any time
	config.Wrap(decode.PageTransport)
	client, err := kubeclient.New(protobuf(target.SendOnce(config)))
	if err != nil {
		return nil, err
	}
	cluster := target.New(client)
	cluster.Name = namespace
	known := d.known(server, wall)
	cluster.Reach = func() reach.Fact { return reach.Both(known(), d.byNamespace.Outage(namespace).By(d.wall.At)) }
	cluster.Lead = func() time.Duration { return wall.AheadOf(d.wall) }
	link := &bynamespace.Link{Cluster: cluster, Run: server.Run, OnServerChange: server.OnChange}
	if d.o.Configs.Enabled {
		link.Begin, err = d.beginConfiguration(cluster, config)
	}
	return link, err
}

// beginConfiguration returns what begins machine configuration in a target cluster, by which a
// configuration connects. Errors: an invalid configuration.
func (d *deps) beginConfiguration(cluster *target.Cluster, config *rest.Config) (begin func() (run func(context.Context)), err error) {
	clients := clusterClients{core: cluster.Client}
	if clients.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, err
	}
	if clients.configs, err = fleetclient.NewForConfig(config); err != nil {
		return nil, err
	}
	return func() func(context.Context) {
		of, err := d.configs.newCluster(cluster, clients)
		if err != nil { // it would be one of each cluster
			return func(ctx context.Context) { klog.FromContext(ctx).Error(err, "Failed to begin machine configuration") }
		}
		return of.Run
	}, nil
}

// targetLease is the Lease in each namespace that records which cluster its target is.
const targetLease = "machine-controller-fleet-target"

// targetIdentities records which cluster is the target of each namespace: an API server that is
// replaced by one of an empty cluster must not look like the loss of all Nodes.
type targetIdentities struct {
	d      *deps
	spread assignment.Spread
}

// identify returns an error unless the cluster is the one that the namespace had first. Which one
// that was is recorded by the replica that owns the namespace. Errors: it is another one; it is not
// recorded yet; the requests.
func (t *targetIdentities) identify(ctx context.Context, namespace string, cluster types.UID) error {
	leases := t.d.control.CoordinationV1().Leases(namespace)
	lease, err := leases.Get(ctx, targetLease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		owned, done, ok := t.d.session.fence.Admit(ctx, t.spread.Of(namespace, ""))
		if !ok {
			return errors.New("the replica that owns the namespace has not identified it yet, which it does when the namespace has a Machine")
		}
		defer done()
		_, err = leases.Create(owned, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: targetLease, Annotations: map[string]string{v1alpha1.AnnotationTargetCluster: string(cluster)}},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("record the cluster on Lease %s: %w", targetLease, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Lease %s: %w", targetLease, err)
	}
	return isSame(lease, cluster)
}

// isSame returns an error unless a cluster is the one that a Lease records.
func isSame(lease *coordinationv1.Lease, cluster types.UID) error {
	if first := lease.Annotations[v1alpha1.AnnotationTargetCluster]; first != string(cluster) {
		return fmt.Errorf("its API server is that of another cluster than before: Namespace %s has the UID %s there, and had %q; "+
			"correct the Secret if it names the wrong cluster; "+
			"if the cluster was replaced intentionally, delete Lease %s, and machines whose Nodes are missing are replaced",
			metav1.NamespaceSystem, cluster, first, targetLease)
	}
	return nil
}
