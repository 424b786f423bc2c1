package machine

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/cloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/credentials"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
)

// classes read MachineClasses with their Secrets, and write what the fleet records on them.
type classes struct {
	machines  machineclient.MachineClassesGetter
	namespace string // the only one that is served; "" means all
	view      *objectcache.View
	latest    *patch.Committer[*v1alpha1.MachineClass]
	secrets   *credentials.Secrets
	drivers   *driver.Registry
	cloud     *cloud.Client
	events    events.EventRecorder
	clock     clock.PassiveClock
	limits    lifecycle.Limits
	wake      func(types.NamespacedName)
	writing   pacing.Turns[types.NamespacedName] // of a class, while it or its Secrets are written
}

// observe records the class and its Secrets, as far as the caches show them.
func (c *classes) observe(p *pass) {
	key := classKey(p.world.Machine)
	if class, known := c.view.Classes.Get(key); known {
		c.note(p, c.latest.Newest(class))
	}
	if f, undecodable := c.view.Classes.Undecodable.Get(key); undecodable {
		p.world.Class.Undecodable = f.Cause
	}
	if secrets, ok := c.secrets.Cached(p.world.Class.Class); ok {
		c.noteSecrets(p, secrets)
	}
}

func classKey(m *v1alpha1.Machine) types.NamespacedName {
	return types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.Class.Name}
}

// note records the class in the world, and its driver in the pass.
func (c *classes) note(p *pass, class *v1alpha1.MachineClass) {
	p.world.Class.Class = class
	p.driver, p.world.Class.ProviderError = c.drivers.Get(class.Provider)
}

// find reads the class from the API server: the cache begins to show the classes of a namespace
// only when it shows its machines, and may not have this one yet.
func (c *classes) find(ctx context.Context, p *pass) error {
	m := p.world.Machine
	if !v1alpha1.MayExist(classKey(m)) {
		return nil
	}
	class, err := c.machines.MachineClasses(m.Namespace).Get(ctx, m.Spec.Class.Name, metav1.GetOptions{})
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
	c.note(p, class)
	if secrets, ok := c.secrets.Cached(class); ok {
		c.noteSecrets(p, secrets)
	}
	return nil
}

// try looks for the VM of a Machine that does not exist, with a MachineClass as the API server has
// it now. answer is the error of the driver, NotFound if the account works. err is why no call was
// sent: the class or its Secrets are missing, invalid, or could not be read.
func (c *classes) try(ctx context.Context, key types.NamespacedName) (answer, err error) {
	if !v1alpha1.MayExist(key) || c.namespace != metav1.NamespaceAll && c.namespace != key.Namespace {
		return nil, fmt.Errorf("expected the MachineClass of a namespace that is served, got %s", key)
	}
	class, err := c.machines.MachineClasses(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read MachineClass %s: %w", key, err)
	}
	cloud, err := c.drivers.Get(class.Provider)
	if err != nil {
		return nil, fmt.Errorf("MachineClass %s: %w", key, err)
	}
	secrets, err := c.secrets.Read(ctx, class)
	if err == nil && secrets.Missing != "" {
		err = fmt.Errorf("expected Secret %s, got none that the class may use", secrets.Missing)
	}
	if err != nil {
		return nil, fmt.Errorf("read the Secrets of MachineClass %s: %w", key, err)
	}
	return c.cloud.Try(ctx, cloud, class, secrets.Credentials()), nil
}

// problem returns what would keep the first machine of a MachineClass from getting a VM, as far as
// that is known without a request to the cloud; "" if nothing would. It reports fields that the
// driver ignores on the class, as the first machine would. Errors: those of the API server, all of
// the driver but that the class is wrong, the end of ctx or of the ownership; nothing is known of
// the class then.
func (c *classes) problem(ctx context.Context, key types.NamespacedName) (problem string, err error) {
	m := cloud.NoMachine(key.Namespace)
	m.Spec.Class = v1alpha1.ClassSpec{Kind: "MachineClass", Name: key.Name}
	p := &pass{world: lifecycle.World{Now: c.clock.Now(), Machine: m, Limits: c.limits}}
	if class, known := c.view.Classes.Get(key); known {
		c.note(p, c.latest.Newest(class))
	} else if err := c.find(ctx, p); err != nil {
		return "", err
	}
	if p.world.Class.Class != nil && p.world.Class.ProviderError == nil {
		if err := c.readSecrets(ctx, p); err != nil {
			return "", fmt.Errorf("read the Secrets of MachineClass %s: %w", key, err)
		}
		if lifecycle.ClassProblem(p.world) == "" {
			if err := c.checkFields(ctx, p); err != nil {
				return "", err
			}
			if is := p.world.Failure; is != nil && is.Code != driver.InvalidArgument {
				return "", fmt.Errorf("ask the driver of MachineClass %s for unknown fields: %s: %s", key, is.Code, is.Message)
			}
		}
	}
	return lifecycle.ClassProblem(p.world), nil
}
