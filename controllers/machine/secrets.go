package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/credentials"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// noteSecrets records what was read of the class' Secrets in the world and the pass.
func (c *classes) noteSecrets(p *pass, secrets credentials.ClassSecrets) {
	class := p.world.Class.Class
	p.credentials, p.prints = secrets.Credentials(), secrets.Prints
	var versions []string
	for _, key := range class.SecretKeys() {
		versions = append(versions, secrets.Prints[key])
	}
	p.world.Secret = lifecycle.SecretFact{
		Read: true, Missing: secrets.Missing, Foreign: secrets.Foreign, UserData: secrets.UserData(), Versions: strings.Join(versions, ","),
	}
	p.world.Class.HasFinalizers = slices.Contains(class.Finalizers, v1alpha1.FinalizerName) && secrets.HaveFinalizer()
}

func (c *classes) readSecrets(ctx context.Context, p *pass) error {
	secrets, err := c.secrets.Read(ctx, p.world.Class.Class)
	if err != nil {
		return err
	}
	c.noteSecrets(p, secrets)
	return nil
}

// awaitSecrets watches the class' Secrets of a machine that waits for them: a change enqueues the
// machine. again is the time after which to read those that are not watched; 0 for never.
func (c *classes) awaitSecrets(p *pass, verdict lifecycle.Verdict) (again time.Duration) {
	m := p.world.Machine
	if !p.held && !lifecycle.AwaitsSecrets(p.world, verdict) {
		c.secrets.StopAwaiting(m.UID)
		return 0
	}
	key := objectcache.Key(m)
	again = c.secrets.Await(m, p.prints, func() { c.wake(key) })
	if _, known := c.view.Machines.Get(key); !known { // the machine is gone or another replica's: no later event would end the watch
		c.secrets.StopAwaiting(m.UID)
	}
	return again
}

// addFinalizers adds our finalizers to the class and its Secrets. One pass at a time does so for a
// class: its machines are created together, and their writes would conflict.
func (c *classes) addFinalizers(ctx context.Context, p *pass) error {
	unlock, err := c.writing.Lock(ctx, objectcache.Key(p.world.Class.Class))
	if err != nil {
		return fmt.Errorf("wait for passes that add finalizers to the class and its Secrets: %w", err)
	}
	defer unlock()
	class := p.world.Class.Class
	if cached, known := c.view.Classes.Get(classKey(p.world.Machine)); known {
		class = cached
	}
	class = c.latest.Newest(class) // another pass may have added the finalizer while this one waited
	if !slices.Contains(class.Finalizers, v1alpha1.FinalizerName) {
		live, err := c.machines.MachineClasses(class.Namespace).Get(ctx, class.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read MachineClass %s before our finalizer is added: %w", class.Name, err)
		}
		class = live // other replicas, which reconcile other machines of the class, may have added it
	}
	if !slices.Contains(class.Finalizers, v1alpha1.FinalizerName) {
		changed := class.DeepCopy()
		changed.Finalizers = append(changed.Finalizers, v1alpha1.FinalizerName)
		written, err := c.latest.Commit(ctx, class, changed)
		if err != nil {
			return fmt.Errorf("put our finalizer on MachineClass: %w", err)
		}
		class = written
		c.secrets.Forget(class.SecretKeys()...) // remembered ones may show finalizers that were removed before that of the class
	}
	p.world.Class.Class = class
	if err := c.secrets.AddFinalizers(ctx, class); err != nil {
		return err
	}
	return c.readSecrets(ctx, p)
}
