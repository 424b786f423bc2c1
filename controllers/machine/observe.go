package machine

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/credentials"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

// pass is one pass over one machine: the world, on which decisions are based, and what only actions
// need.
type pass struct {
	world   lifecycle.World
	cluster *target.Cluster
	driver  driver.Driver
	// credentials for the cloud: the data of one Secret of the class
	credentials map[string][]byte
	prints      map[types.NamespacedName]string // of the Secrets that the class names
	token       string                          // bootstrap token for the user data
	held        bool                            // a call waits for the circuit breaker of the account
	again       time.Duration                   // when to look again for what no event reports; 0 means not
	listed      *sighting                       // nil before the pods are listed, and after the drain has used the list
}

// sighting has the pods of a Node as they were read in this pass from the API server, after the
// Node was cordoned.
type sighting struct {
	node types.UID
	pods []*corev1.Pod
}

// outages records in worlds what this process knows of API servers that do not answer.
type outages struct {
	clock   clock.PassiveClock
	servers target.Servers
}

// observe records the time, and when nothing could be done for the machine.
func (o *outages) observe(p *pass) {
	m := p.world.Machine
	p.world.Now = o.clock.Now()
	p.world.Reach = reach.Both(o.servers.Of(m, p.cluster), lifecycle.WasSetAside(m, p.world.Now))
}

// observer begins passes.
type observer struct {
	targets target.Resolver
	limits  lifecycle.Limits
	memory  *machineMemory
	outages *outages
	classes *classes
	vms     *vms
	nodes   *nodes
	parents *parents
	drains  *drainer.Drainer
	tokens  *credentials.Tokens
}

// observe returns a pass with what this process knows of the machine without a request. Errors: the
// target cluster, unless the machine is being deleted.
func (o *observer) observe(m *v1alpha1.Machine) (*pass, error) {
	cluster, err := o.targets.For(m.Namespace)
	problem := ""
	if unavailable, is := errors.AsType[*target.UnavailableError](err); is && !unavailable.Pending && m.DeletionTimestamp != nil {
		problem, err = unavailable.Reason, nil // a deletion goes on as far as it can, and reports why it waits
	}
	if err != nil {
		return nil, fmt.Errorf("find the target cluster of namespace %s: %w", m.Namespace, err)
	}
	p := &pass{cluster: cluster, world: lifecycle.World{
		Limits:         o.limits,
		Machine:        m,
		NoTarget:       cluster == nil && problem == "",
		TargetProblem:  problem,
		UnlabeledNodes: cluster != nil && cluster.Name != "",
	}}
	o.outages.observe(p)
	o.classes.observe(p)
	p.world.Proven = o.memory.of(m.UID).proven
	o.vms.observeEvidence(p)
	o.nodes.observe(p, lifecycle.NodeName(m))
	o.vms.observeEnding(p)
	o.parents.observe(p)
	p.world.Drain.State = o.drains.State(m.UID)
	p.world.TokenExpiry = o.tokens.Expiry(m.UID)
	return p, nil
}
