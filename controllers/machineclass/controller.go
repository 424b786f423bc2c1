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
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// Config is the configuration of the controller. All fields but Gate, Workers, Metrics and Tracer
// are required.
type Config struct {
	// Machines and Secrets read and write in the control cluster, without a cache.
	Machines machineclient.MachineV1alpha1Interface
	Secrets  corev1client.SecretsGetter
	Metadata metadata.Interface
	View     *objectcache.View
	// Namespace is the only namespace that is served; "" means all. Namespaces returns those whose
	// Secrets are listed, one by one; nil means that those of Namespace are listed together.
	Namespace  string
	Namespaces func() []string
	Clock      clock.WithTicker
	Gate       runner.Gate[types.NamespacedName]
	Workers    int
	Metrics    *runner.Metrics
	Tracer     trace.Tracer
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error {
	return required.Fields(c, "Namespace", "Namespaces", "Gate", "Workers", "Metrics", "Tracer")
}

// Controller reconciles MachineClasses, and Secrets that a class has ceased to name. New returns
// one; call it before the View is filled.
type Controller struct {
	cfg     Config
	classes *patch.Committer[*v1alpha1.MachineClass]
	byClass *runner.Runner[types.NamespacedName]
	secrets *runner.Runner[types.NamespacedName]
	opened  chan struct{} // has an element after slots were opened
	listing chan struct{} // its capacity limits concurrent lists
}

// New returns the controller and registers its handlers with the View. Errors: those of
// Config.Validate, and negative Workers.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Controller{
		cfg:     cfg,
		opened:  make(chan struct{}, 1),
		listing: make(chan struct{}, lists),
		classes: patch.New(func(ns string) patch.Patcher[*v1alpha1.MachineClass] { return cfg.Machines.MachineClasses(ns) }),
	}
	base := runner.Config[types.NamespacedName]{
		Workers: runner.TenantsAtOnce * cfg.Workers, Gate: cfg.Gate, Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer,
	}
	var errs [2]error
	base.Name, base.LogKey, base.Reconcile = runner.MachineClass, telemetry.KeyMachineClass, c.reconcileClass
	c.byClass, errs[0] = runner.New(base)
	base.Name, base.LogKey, base.Reconcile = runner.MachineClassSecret, telemetry.KeySecret, c.reconcileSecret
	c.secrets, errs[1] = runner.New(base)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return c, c.watch()
}

// Enqueue enqueues a MachineClass; those who open the gate call it.
func (c *Controller) Enqueue(class types.NamespacedName) { c.byClass.Enqueue(class) }

// Run reconciles until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.byClass.Run(ctx) })
	running.Go(func() { c.secrets.Run(ctx) })
	c.runSweeps(ctx)
	running.Wait()
}

// reconcileClass releases a class that no machine uses, and adds finalizers to one that machines
// need.
func (c *Controller) reconcileClass(ctx context.Context, key types.NamespacedName) (runner.Result, error) {
	class, err := c.find(ctx, key)
	if err != nil || class == nil {
		return runner.Result{}, err
	}
	hasFinalizer := slices.Contains(class.Finalizers, v1alpha1.FinalizerName)
	if !hasFinalizer && class.DeletionTimestamp != nil {
		return runner.Result{}, nil // a finalizer can no longer be added
	}
	found, here, err := c.use(ctx, key)
	if err != nil {
		return runner.Result{}, err
	}
	switch {
	case found == needed:
		return waitForUsers(class, here), c.keep(ctx, class)
	case found == used && hasFinalizer:
		return waitForUsers(class, here), nil
	case !hasFinalizer:
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
		return runner.Result{}, fmt.Errorf("remove our finalizer from the MachineClass: %w", err)
	}
	return runner.Result{}, nil
}

// userPoll is the interval at which live lists check whether machines still use a class that is
// being deleted, and idlePoll the interval for the machines of other replicas if it is not. No
// event reports the deletion of the last of these.
const (
	userPoll = 5 * time.Second
	idlePoll = 10 * time.Minute
)

// waitForUsers returns when to check a class again that is used: by machines that are cached here,
// or only by others.
func waitForUsers(class *v1alpha1.MachineClass, here bool) runner.Result {
	switch {
	case class.DeletionTimestamp != nil:
		return runner.Result{RequeueAfter: userPoll}
	case here:
		return runner.Result{}
	}
	return runner.Result{RequeueAfter: idlePoll}
}

// find returns a class; nil if there is none, or none that can be decoded. Its content is cached
// only where this process has machines.
func (c *Controller) find(ctx context.Context, key types.NamespacedName) (*v1alpha1.MachineClass, error) {
	if cached, known := c.cfg.View.Classes.Get(key); known {
		return c.classes.Newest(cached), nil
	}
	if !v1alpha1.MayExist(key) { // the key comes from the spec of a machine
		return nil, nil
	}
	live, err := c.cfg.Machines.MachineClasses(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if _, undecodable := decode.FailureOf(err); apierrors.IsNotFound(err) || undecodable {
		return nil, nil // a class that cannot be decoded is reconciled when it has changed
	}
	if err != nil {
		return nil, fmt.Errorf("read MachineClass %s: %w", key, err)
	}
	return live, nil
}

// keep adds our finalizers again to a class with VMs, and to the Secrets that it names now: another
// client has removed them, or the class names another Secret than when its machines were created.
func (c *Controller) keep(ctx context.Context, class *v1alpha1.MachineClass) error {
	if class.DeletionTimestamp != nil {
		return nil // no finalizer can be added any more, and existing ones are kept
	}
	if !slices.Contains(class.Finalizers, v1alpha1.FinalizerName) {
		hasFinalizer := class.DeepCopy()
		hasFinalizer.Finalizers = append(hasFinalizer.Finalizers, v1alpha1.FinalizerName)
		if _, err := c.classes.Commit(ctx, class, hasFinalizer); err != nil {
			return fmt.Errorf("add our finalizer to the MachineClass again: %w", err)
		}
	}
	for _, key := range class.SecretKeys() {
		if err := c.keepSecret(ctx, key, class.Namespace); err != nil {
			return err
		}
	}
	return nil
}

// use is how a class is used.
type use int

const (
	unused use = iota
	used       // machines without a VM
	needed     // machines with a VM, which cannot be deleted without class and Secrets
)

// by returns the use of a class with one more machine.
func (u use) by(m *v1alpha1.Machine) use {
	if m.Spec.ProviderID != "" {
		return needed
	}
	return max(u, used)
}

// useBy returns the use of a class by a machine that cannot be decoded. If its class cannot be
// decoded either, it may be this one.
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

// usersPage is the number of machines in one page of a list. The first page nearly always suffices.
const usersPage = 50

// use returns how a class is used: by the cache, which has this replica's machines, and if that has
// none, by live lists, which include other replicas' machines.
func (c *Controller) use(ctx context.Context, class types.NamespacedName) (found use, here bool, err error) {
	for _, m := range c.cfg.View.Machines.By(indexUsers, class.String()) {
		found = found.by(m)
	}
	if found != unused {
		return found, true, nil
	}
	if err := c.turn(ctx); err != nil {
		return unused, false, err
	}
	defer func() { <-c.listing }()
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.class.name", class.Name).String(), Limit: usersPage}
	visit := func(page *v1alpha1.MachineList, undecodable []*decode.Failure) (done bool) {
		for _, f := range undecodable {
			found = max(found, useBy(f, class.Name))
		}
		for i := range page.Items {
			if page.Items[i].Spec.Class.Name == class.Name {
				found = found.by(&page.Items[i])
			}
		}
		return found == needed
	}
	list, what := c.cfg.Machines.Machines(class.Namespace).List, "the machines of MachineClass "+class.String()
	err = decode.UntilPage(ctx, what, options, list, visit)
	if apierrors.IsBadRequest(err) { // the cluster's CRD has no selectable fields
		err = decode.UntilPage(ctx, what, metav1.ListOptions{Limit: usersPage}, list, visit)
	}
	if err != nil {
		return unused, false, err
	}
	return found, false, nil
}

// lists is the maximum number of concurrent lists, which read whole objects.
const lists = 4

// turn waits for the turn of a list, which ends when a value is received from listing.
func (c *Controller) turn(ctx context.Context) error {
	select {
	case c.listing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
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

// machineChanged enqueues a class whose last cached machine was removed, or has got another class.
func (c *Controller) machineChanged(before, after *v1alpha1.Machine) {
	if before == nil || after != nil && after.Spec.Class.Name == before.Spec.Class.Name {
		return
	}
	class := types.NamespacedName{Namespace: before.Namespace, Name: before.Spec.Class.Name}
	if len(c.cfg.View.Machines.By(indexUsers, class.String())) == 0 {
		c.byClass.Enqueue(class)
	}
}

// classChanged enqueues a class, and the Secrets that it named before and no longer names.
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
