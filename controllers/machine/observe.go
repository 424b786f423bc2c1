package machine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

// pass is one pass over one machine: the world, which decisions are made on, and what only actions need.
type pass struct {
	world   lifecycle.World
	cluster *target.Cluster
	driver  driver.Driver
	// credentials for the cloud: the data of one Secret of the class
	credentials map[string][]byte
	prints      map[types.NamespacedName]string // of the Secrets that the class names
	token       string                          // bootstrap token for the user data
	held        bool                            // a call waits for the circuit breaker of the account
	listed      *sighting                       // nil before the pods are listed, and after the drain has used the list
}

// sighting has the pods of a Node as they were read in this pass, past all caches and after the Node was cordoned.
type sighting struct {
	node types.UID
	pods []*corev1.Pod
}

// observe returns a pass with what this process knows of the machine without a request. Errors: the target cluster.
func (c *Controller) observe(m *v1alpha1.Machine) (*pass, error) {
	cluster, err := c.cfg.Targets.For(m.Namespace)
	if err != nil {
		return nil, fmt.Errorf("find the target cluster of namespace %s: %w", m.Namespace, err)
	}
	p := &pass{cluster: cluster, world: lifecycle.World{Limits: c.cfg.Limits, Machine: m, NoTarget: cluster == nil}}
	c.observeOutages(p)
	if class, known := c.cfg.View.Classes.Get(classKey(m)); known {
		c.noteClass(p, c.classes.Newest(class))
	}
	if f, undecodable := c.cfg.View.Classes.Undecodable.Get(classKey(m)); undecodable {
		p.world.Class.Undecodable = f.Cause
	}
	if secrets, ok := c.secrets.Cached(p.world.Class.Class); ok {
		c.noteSecrets(p, secrets)
	}
	p.world.Proven = c.memory.of(m.UID).proven
	c.observeEvidence(p)
	c.observeNode(p, lifecycle.NodeName(m))
	c.observeEnding(p)
	p.world.Disruption, p.world.Rollout, p.world.NoComponentsTaint = c.disruption(m), c.rollout(m), c.omitsComponentsTaint(m)
	p.world.Decided = c.decided(m)
	p.world.Drain.State = c.drains.State(m.UID)
	p.world.TokenExpiry = c.tokens.Expiry(m.UID)
	return p, nil
}

// observeOutages records the time, and when nothing could be done for the machine.
func (c *Controller) observeOutages(p *pass) {
	m := p.world.Machine
	p.world.Now = c.cfg.Clock.Now()
	p.world.Reach = reach.Both(c.cfg.Servers.Of(m, p.cluster), lifecycle.WasSetAside(m, p.world.Now))
}

func classKey(m *v1alpha1.Machine) types.NamespacedName {
	return types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.Class.Name}
}

// noteClass records the class in the world, and its driver in the pass.
func (c *Controller) noteClass(p *pass, class *v1alpha1.MachineClass) {
	p.world.Class.Class = class
	p.driver, p.world.Class.ProviderError = c.cfg.Drivers.Get(class.Provider)
}

// findClass reads the class past the cache: the cache begins to show the classes of a namespace only when it shows its machines, and
// may not have this one yet.
func (c *Controller) findClass(ctx context.Context, p *pass) error {
	m := p.world.Machine
	if !v1alpha1.MayExist(classKey(m)) {
		return nil
	}
	class, err := c.cfg.Machines.MachineClasses(m.Namespace).Get(ctx, m.Spec.Class.Name, metav1.GetOptions{})
	if failure, undecodable := decode.FailureOf(err); undecodable {
		p.world.Class.Undecodable = failure.Cause
		return nil
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read MachineClass %s: %w", classKey(m), err)
	}
	c.noteClass(p, class)
	if secrets, ok := c.secrets.Cached(class); ok {
		c.noteSecrets(p, secrets)
	}
	return nil
}

// observeNode records the Node in the world as the cache shows it or, until then, as it was claimed.
func (c *Controller) observeNode(p *pass, name string) {
	p.world.Node = lifecycle.NodeFact{}
	if name == "" || p.cluster == nil {
		return
	}
	if node, known := p.cluster.Nodes.Get(types.NamespacedName{Name: name}); known {
		c.claims.forget(name)
		c.noteNode(p, c.nodes.Newest(node))
		return
	}
	if claim := c.claims.of(name); claim.node != nil {
		if c.own.Since(claim.at) < machinefacts.LateCache {
			c.noteNode(p, c.nodes.Newest(claim.node))
			return
		}
		c.claims.forget(name)
	}
	if c.cfg.IsUnlabeled != nil && c.cfg.IsUnlabeled(name) {
		p.world.Node.State = lifecycle.NodeNamed
	}
}
