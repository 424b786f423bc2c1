package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/target"
)

// pass is one pass over one machine: the world, and what only the hands need.
type pass struct {
	world   lifecycle.World
	cluster *target.Cluster
	driver  driver.Driver
	secrets []*corev1.Secret  // that the class names, as read
	data    map[string][]byte // of the secrets, overlaid
	token   string            // bootstrap token for the user data
}

// inputs identifies the versions of class and secrets.
func (p *pass) inputs() string {
	var versions strings.Builder
	if class := p.world.Class.Class; class != nil {
		fmt.Fprintf(&versions, "%s/%d", class.UID, class.Generation)
	}
	for _, s := range p.secrets {
		versions.WriteString("," + s.ResourceVersion)
	}
	return versions.String()
}

// observe gathers what is known without asking anybody: the caches and this process' memory.
func (c *Controller) observe(m *v1alpha1.Machine) (*pass, error) {
	cluster, err := c.cfg.Targets.For(m.Namespace)
	if err != nil {
		return nil, fmt.Errorf("find the target cluster of namespace %s: %w", m.Namespace, err)
	}
	p := &pass{cluster: cluster, world: lifecycle.World{Now: c.cfg.Clock.Now(), Limits: c.cfg.Limits, Machine: m}}
	class, err := c.cfg.Informers.MachineClasses().Lister().MachineClasses(m.Namespace).Get(m.Spec.Class.Name)
	switch {
	case err == nil:
		p.world.Class.Class = c.classes.Newest(class)
		p.driver, p.world.Class.ProviderError = c.cfg.Drivers.Get(class.Provider)
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read MachineClass %s/%s from the cache: %w", m.Namespace, m.Spec.Class.Name, err)
	}
	if secrets, ok := c.secrets.cached(p.world.Class.Class); ok {
		c.noteSecrets(p, secrets, "")
	}
	if err := c.observeNode(p, lifecycle.NodeName(m)); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, known := c.attempts[m.UID]; known {
		p.world.RetryAt = last.retryAt
		p.world.InputsChanged = p.world.Secret.Read && last.inputs != p.inputs()
	}
	return p, nil
}

// observeNode looks the Node up in the cache.
func (c *Controller) observeNode(p *pass, name string) error {
	p.world.Node = lifecycle.NodeFact{}
	if name == "" {
		return nil
	}
	node, err := p.cluster.Nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Node %s from the cache: %w", name, err)
	}
	p.world.Node = lifecycle.NodeFact{State: lifecycle.NodePresent, Node: c.nodes.Newest(node)}
	return nil
}

// noteSecrets puts what was read of the class' secrets into the world.
func (c *Controller) noteSecrets(p *pass, secrets []*corev1.Secret, missing string) {
	p.secrets, p.data = secrets, map[string][]byte{}
	for _, s := range secrets {
		maps.Copy(p.data, s.Data)
	}
	p.world.Secret = lifecycle.SecretFact{Read: true, Missing: missing, UserData: p.data[v1alpha1.SecretKeyUserData]}
	p.world.Class.Held = missing == "" && p.world.Class.Class != nil &&
		slices.Contains(p.world.Class.Class.Finalizers, v1alpha1.FinalizerName) &&
		!slices.ContainsFunc(secrets, func(s *corev1.Secret) bool { return !slices.Contains(s.Finalizers, v1alpha1.SecretFinalizerName) })
}
