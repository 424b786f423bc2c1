package machineclass

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
)

// Names of the two runners in metrics, logs and spans.
const (
	Name       = "machineclass"
	SecretName = "machineclass-secret"
)

// Config is what the controller needs. All but Gate, Workers, Metrics and Tracer are required.
type Config struct {
	// Machines and Secrets read and write in the control cluster, past all caches.
	Machines machineclient.MachineV1alpha1Interface
	Secrets  corev1client.SecretsGetter
	Metadata metadata.Interface
	View     *objectcache.View
	// Namespace is the only one that is served; "" means all.
	Namespace string
	Clock     clock.WithTicker
	Gate      runner.Gate[types.NamespacedName]
	Workers   int
	Metrics   *runner.Metrics
	Tracer    trace.Tracer
}

// Controller reconciles MachineClasses, and Secrets that a class has stopped to name. Make one with New, before
// anything is fed to the View.
type Controller struct {
	cfg     Config
	classes *patch.Committer[*v1alpha1.MachineClass]
	byClass *runner.Runner[types.NamespacedName]
	secrets *runner.Runner[types.NamespacedName]
	opened  chan struct{} // holds one when slots were
}

// New makes the controller and has the View enqueue what concerns it.
func New(cfg Config) (*Controller, error) {
	c := &Controller{
		cfg:     cfg,
		opened:  make(chan struct{}, 1),
		classes: patch.New(func(ns string) patch.Patcher[*v1alpha1.MachineClass] { return cfg.Machines.MachineClasses(ns) }),
	}
	base := runner.Config[types.NamespacedName]{
		Workers: runner.TenantsAtOnce * cfg.Workers, Gate: cfg.Gate, Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer,
	}
	var errs [2]error
	base.Name, base.Reconcile = Name, c.reconcileClass
	c.byClass, errs[0] = runner.New(base)
	base.Name, base.Reconcile = SecretName, c.reconcileSecret
	c.secrets, errs[1] = runner.New(base)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return c, c.watch()
}

// Enqueue has a MachineClass reconciled soon, for those who open the gate.
func (c *Controller) Enqueue(class types.NamespacedName) { c.byClass.Enqueue(class) }

// Run reconciles until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.byClass.Run(ctx) })
	running.Go(func() { c.secrets.Run(ctx) })
	c.runSweeps(ctx)
	running.Wait()
}

// reconcileClass lets a class go that no machine uses, and keeps one that is needed.
func (c *Controller) reconcileClass(ctx context.Context, key types.NamespacedName) (runner.Result, error) {
	class, err := c.find(ctx, key)
	if err != nil || class == nil {
		return runner.Result{}, err
	}
	held := slices.Contains(class.Finalizers, v1alpha1.FinalizerName)
	if !held && class.DeletionTimestamp != nil {
		return runner.Result{}, nil // and cannot be held any more
	}
	found, here, err := c.use(ctx, key)
	if err != nil {
		return runner.Result{}, err
	}
	switch {
	case found == needed:
		return waitForUsers(class, here), c.keep(ctx, class)
	case found == used && held:
		return waitForUsers(class, here), nil
	case !held:
		return runner.Result{}, nil
	}
	for _, secret := range class.SecretKeys() {
		if err := c.releaseSecret(ctx, secret, class.Namespace, class.UID); err != nil {
			return runner.Result{}, err
		}
	}
	released := class.DeepCopy()
	released.Finalizers = slices.DeleteFunc(released.Finalizers, func(f string) bool { return f == v1alpha1.FinalizerName })
	_, err = c.classes.Commit(ctx, class, released)
	if err != nil && !apierrors.IsNotFound(err) {
		return runner.Result{}, fmt.Errorf("take our finalizer off the MachineClass: %w", err)
	}
	return runner.Result{}, nil
}

// userPoll is how often it is asked whether machines still use a class that is to go, and calmPoll whether other replicas'
// machines use one that is not. Nobody tells when the last of these has gone.
const (
	userPoll = 5 * time.Second
	calmPoll = time.Minute
)

// waitForUsers says when to look again at a class that is used: by machines that are shown here, or only elsewhere.
func waitForUsers(class *v1alpha1.MachineClass, here bool) runner.Result {
	switch {
	case class.DeletionTimestamp != nil:
		return runner.Result{RequeueAfter: userPoll}
	case here:
		return runner.Result{}
	}
	return runner.Result{RequeueAfter: calmPoll}
}

// find returns a class; nil when there is none, or none that can be decoded. Its content is shown only where this process has machines.
func (c *Controller) find(ctx context.Context, key types.NamespacedName) (*v1alpha1.MachineClass, error) {
	if cached, known := c.cfg.View.Classes.Get(key); known {
		return c.classes.Newest(cached), nil
	}
	if !v1alpha1.MayExist(key) { // the key is what a machine names
		return nil, nil
	}
	live, err := c.cfg.Machines.MachineClasses(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if _, undecodable := decode.FailureOf(err); apierrors.IsNotFound(err) || undecodable {
		return nil, nil // what cannot be decoded is looked at when it has changed
	}
	if err != nil {
		return nil, fmt.Errorf("read MachineClass %s: %w", key, err)
	}
	return live, nil
}

// keep puts our finalizers back on a class with VMs, and on the Secrets that it names by now: somebody has taken them off,
// or the class names another Secret than when its machines were made.
func (c *Controller) keep(ctx context.Context, class *v1alpha1.MachineClass) error {
	if class.DeletionTimestamp != nil {
		return nil // nothing can be held any more, and what is, is
	}
	if !slices.Contains(class.Finalizers, v1alpha1.FinalizerName) {
		held := class.DeepCopy()
		held.Finalizers = append(held.Finalizers, v1alpha1.FinalizerName)
		if _, err := c.classes.Commit(ctx, class, held); err != nil {
			return fmt.Errorf("put our finalizer back on the MachineClass: %w", err)
		}
	}
	for _, key := range class.SecretKeys() {
		if err := c.keepSecret(ctx, key, class.Namespace); err != nil {
			return err
		}
	}
	return nil
}

// use says who uses a class.
type use int

const (
	unused use = iota
	used       // machines without a VM
	needed     // machines with a VM, which cannot be deleted without class and Secrets
)

// by is the use of a class that a machine uses, too.
func (u use) by(m *v1alpha1.Machine) use {
	if m.Spec.ProviderID != "" {
		return needed
	}
	return max(u, used)
}

// useBy is the use of a class by a machine that cannot be decoded. Where not even its class can be, it may be this one.
func useBy(f *decode.Failure, class string) use {
	var m struct {
		Spec struct {
			Class struct {
				Name string `json:"name"`
			} `json:"class"`
			ProviderID string `json:"providerID"`
		} `json:"spec"`
	}
	switch err := f.Into(&m); {
	case err == nil && m.Spec.Class.Name != class:
		return unused
	case err == nil && m.Spec.ProviderID != "":
		return needed
	}
	return used
}

// usersPage is how many machines are read at a time. The first ones nearly always tell.
const usersPage = 50

// use says who uses a class: by the cache, which shows machines that are here, and where that shows none by live lists, of other
// replicas' machines.
func (c *Controller) use(ctx context.Context, class types.NamespacedName) (found use, here bool, err error) {
	for _, m := range c.cfg.View.Machines.By(indexUsers, class.String()) {
		found = found.by(m)
	}
	if found != unused {
		return found, true, nil
	}
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.class.name", class.Name).String(), Limit: usersPage}
	for {
		list, err := c.cfg.Machines.Machines(class.Namespace).List(ctx, options)
		if apierrors.IsBadRequest(err) && options.FieldSelector != "" { // the cluster's CRD has no selectable fields
			options.FieldSelector = ""
			continue
		}
		undecodable, err := decode.Missing(err)
		if err != nil {
			return unused, false, fmt.Errorf("list the machines of MachineClass %s: %w", class, err)
		}
		for _, f := range undecodable {
			found = max(found, useBy(f, class.Name))
		}
		for i := range list.Items {
			if list.Items[i].Spec.Class.Name == class.Name {
				found = found.by(&list.Items[i])
			}
		}
		if options.Continue = list.Continue; options.Continue == "" || found == needed {
			return found, false, nil
		}
	}
}

// indexUsers is the index of the machines by namespace/name of the class.
const indexUsers = "machineclass-users"

// watch adds the index and the event handlers.
func (c *Controller) watch() error {
	err := c.cfg.View.Machines.AddIndex(indexUsers, func(m *v1alpha1.Machine) []string {
		return []string{m.Namespace + "/" + m.Spec.Class.Name}
	})
	if err != nil {
		return fmt.Errorf("machineclass controller: %w", err)
	}
	c.cfg.View.Machines.OnChange(c.machineChanged)
	c.cfg.View.Classes.OnChange(c.classChanged)
	return nil
}

// machineChanged has a class looked at whose last machine, as it is shown here, is gone.
func (c *Controller) machineChanged(before, after *v1alpha1.Machine) {
	if after != nil {
		return
	}
	class := types.NamespacedName{Namespace: before.Namespace, Name: before.Spec.Class.Name}
	if len(c.cfg.View.Machines.By(indexUsers, class.String())) == 0 {
		c.byClass.Enqueue(class)
	}
}

// classChanged looks at a class, and at the Secrets that it named before and does not name any more.
func (c *Controller) classChanged(before, after *v1alpha1.MachineClass) {
	var named []types.NamespacedName
	if after != nil {
		c.byClass.Enqueue(objectcache.Key(after))
		named = after.SecretKeys()
	} else {
		c.classes.Forget(before.UID)
	}
	if before == nil {
		return
	}
	for _, key := range before.SecretKeys() {
		if !slices.Contains(named, key) {
			c.secrets.Enqueue(key)
		}
	}
}
