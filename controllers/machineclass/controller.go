package machineclass

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	machineinformers "github.com/machine-controller-fleet/machine-controller-fleet/client/informers/externalversions/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/commit"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/family"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/runner"
)

// Names of the two runners in metrics, logs and spans.
const (
	Name       = "machineclass"
	SecretName = "machineclass-secret"
)

// Config is what the controller needs. All but Gate, Workers, Metrics and Tracer are required.
type Config struct {
	// Machines and Secrets read and write in the control cluster, past all caches.
	Machines  machineclient.MachineV1alpha1Interface
	Secrets   corev1client.SecretsGetter
	Metadata  metadata.Interface
	Informers machineinformers.Interface
	// Namespace is the only one that is served; "" means all.
	Namespace string
	Clock     clock.WithTicker
	Gate      runner.Gate[types.NamespacedName]
	Workers   int
	Metrics   *runner.Metrics
	Tracer    trace.Tracer
}

// Controller reconciles MachineClasses, and Secrets that a class has stopped to name. Make one with New, before the
// informers start.
type Controller struct {
	cfg     Config
	classes *commit.Committer[*v1alpha1.MachineClass]
	byClass *runner.Runner[types.NamespacedName]
	secrets *runner.Runner[types.NamespacedName]
}

// New makes the controller and has the informers enqueue what concerns it.
func New(cfg Config) (*Controller, error) {
	c := &Controller{
		cfg:     cfg,
		classes: commit.New(func(ns string) commit.Patcher[*v1alpha1.MachineClass] { return cfg.Machines.MachineClasses(ns) }),
	}
	base := runner.Config[types.NamespacedName]{
		Workers: cfg.Workers, Gate: cfg.Gate, Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer,
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

// Run reconciles until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.byClass.Run(ctx) })
	running.Go(func() { c.secrets.Run(ctx) })
	if err := c.sweep(ctx); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "A Secret that no class names may keep our finalizer until the next start")
	}
	running.Wait()
}

// reconcileClass lets a class go that no machine uses.
func (c *Controller) reconcileClass(ctx context.Context, key types.NamespacedName) (runner.Result, error) {
	cached, err := c.cfg.Informers.MachineClasses().Lister().MachineClasses(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return runner.Result{}, nil
	}
	if err != nil {
		return runner.Result{}, fmt.Errorf("read MachineClass %s from the cache: %w", key, err)
	}
	class := c.classes.Newest(cached)
	if c.hasVMs(key) {
		return runner.Result{}, c.keep(ctx, class)
	}
	if !slices.Contains(class.Finalizers, v1alpha1.FinalizerName) {
		return runner.Result{}, nil
	}
	used, err := c.isUsed(ctx, key)
	if err != nil || used {
		return runner.Result{}, err
	}
	for _, secret := range class.SecretKeys() {
		if err := c.releaseSecret(ctx, secret, class.UID); err != nil {
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

// hasVMs says whether the cache shows a machine of the class with a VM, which cannot be deleted without class and Secrets.
func (c *Controller) hasVMs(class types.NamespacedName) bool {
	cached, err := c.cfg.Informers.Machines().Informer().GetIndexer().ByIndex(indexUsers, class.String())
	return err == nil && slices.ContainsFunc(cached, func(obj any) bool {
		m, ok := obj.(*v1alpha1.Machine)
		return ok && m.Spec.ProviderID != ""
	})
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
		secret, err := c.cfg.Secrets.Secrets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read Secret %s: %w", key, err)
		}
		if secret.DeletionTimestamp != nil || slices.Contains(secret.Finalizers, v1alpha1.SecretFinalizerName) {
			continue
		}
		secret.Finalizers = append(secret.Finalizers, v1alpha1.SecretFinalizerName)
		if _, err := c.cfg.Secrets.Secrets(key.Namespace).Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("put our finalizer on Secret %s: %w", key, err)
		}
	}
	return nil
}

// sweep has every Secret looked at that carries our finalizer: a class may have stopped to name it while nobody watched.
func (c *Controller) sweep(ctx context.Context) error {
	secrets := c.cfg.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(c.cfg.Namespace)
	options := metav1.ListOptions{Limit: 500}
	for {
		list, err := secrets.List(ctx, options)
		if err != nil {
			return fmt.Errorf("look for Secrets that no class names any more: %w", err)
		}
		for i := range list.Items {
			if slices.Contains(list.Items[i].Finalizers, v1alpha1.SecretFinalizerName) {
				c.secrets.Enqueue(types.NamespacedName{Namespace: list.Items[i].Namespace, Name: list.Items[i].Name})
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

// isUsed says whether there is a machine of the class: by the cache, and where that shows none by a live list.
func (c *Controller) isUsed(ctx context.Context, class types.NamespacedName) (bool, error) {
	cached, err := c.cfg.Informers.Machines().Informer().GetIndexer().ByIndex(indexUsers, class.String())
	if err != nil || len(cached) > 0 {
		return true, err
	}
	machines := c.cfg.Machines.Machines(class.Namespace)
	list, err := machines.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.class.name", class.Name).String(), Limit: 1})
	if err == nil {
		return len(list.Items) > 0, nil
	}
	if !apierrors.IsBadRequest(err) {
		return true, fmt.Errorf("list the machines of MachineClass %s: %w", class, err)
	}
	list, err = machines.List(ctx, metav1.ListOptions{}) // the cluster's CRD has no selectable fields
	if err != nil {
		return true, fmt.Errorf("list the machines of namespace %s: %w", class.Namespace, err)
	}
	return slices.ContainsFunc(list.Items, func(m v1alpha1.Machine) bool { return m.Spec.Class.Name == class.Name }), nil
}

// reconcileSecret lets a Secret go that no class names any more.
func (c *Controller) reconcileSecret(ctx context.Context, key types.NamespacedName) (runner.Result, error) {
	return runner.Result{}, c.releaseSecret(ctx, key, "")
}

// releaseSecret takes our finalizer off a Secret, unless a class other than the given one holds it.
func (c *Controller) releaseSecret(ctx context.Context, key types.NamespacedName, except types.UID) error {
	holds := func(class *v1alpha1.MachineClass) bool {
		return class.UID != except && slices.Contains(class.Finalizers, v1alpha1.FinalizerName) && slices.Contains(class.SecretKeys(), key)
	}
	cached, err := c.cfg.Informers.MachineClasses().Lister().List(labels.Everything())
	if err != nil {
		return fmt.Errorf("read MachineClasses from the cache: %w", err)
	}
	if slices.ContainsFunc(cached, holds) {
		return nil
	}
	secret, err := c.cfg.Secrets.Secrets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Secret %s: %w", key, err)
	}
	if !slices.Contains(secret.Finalizers, v1alpha1.SecretFinalizerName) {
		return nil
	}
	live, err := c.cfg.Machines.MachineClasses(key.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the MachineClasses of namespace %s: %w", key.Namespace, err)
	}
	if slices.ContainsFunc(live.Items, func(class v1alpha1.MachineClass) bool { return holds(&class) }) {
		return nil
	}
	return c.updateSecret(ctx, secret)
}

func (c *Controller) updateSecret(ctx context.Context, secret *corev1.Secret) error {
	secret.Finalizers = slices.DeleteFunc(secret.Finalizers, func(f string) bool { return f == v1alpha1.SecretFinalizerName })
	_, err := c.cfg.Secrets.Secrets(secret.Namespace).Update(ctx, secret, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("take our finalizer off Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// indexUsers is the index of the Machines' informer by namespace/name of the class.
const indexUsers = "machineclass-users"

// watch adds the index and the event handlers.
func (c *Controller) watch() error {
	machines := c.cfg.Informers.Machines().Informer()
	errs := []error{machines.AddIndexers(cache.Indexers{indexUsers: func(obj any) ([]string, error) {
		if m, ok := obj.(*v1alpha1.Machine); ok {
			return []string{m.Namespace + "/" + m.Spec.Class.Name}, nil
		}
		return nil, nil
	}})}
	_, err := machines.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: c.machineGone})
	errs = append(errs, err)
	_, err = c.cfg.Informers.MachineClasses().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: c.classUpdated,
		DeleteFunc: c.classGone,
	})
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("machineclass controller: %w", err)
	}
	return nil
}

func (c *Controller) enqueue(obj any) {
	if class, ok := obj.(*v1alpha1.MachineClass); ok {
		c.byClass.Enqueue(types.NamespacedName{Namespace: class.Namespace, Name: class.Name})
	}
}

// machineGone has a class looked at whose last machine, as the cache shows it, is gone.
func (c *Controller) machineGone(obj any) {
	m, ok := family.Last[*v1alpha1.Machine](obj)
	if !ok {
		return
	}
	class := types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.Class.Name}
	if left, err := c.cfg.Informers.Machines().Informer().GetIndexer().ByIndex(indexUsers, class.String()); err == nil && len(left) == 0 {
		c.byClass.Enqueue(class)
	}
}

// classUpdated also looks at the Secrets that the class named before and does not name any more.
func (c *Controller) classUpdated(before, after any) {
	old, ok := before.(*v1alpha1.MachineClass)
	class, ok2 := after.(*v1alpha1.MachineClass)
	if !ok || !ok2 {
		return
	}
	for _, key := range old.SecretKeys() {
		if !slices.Contains(class.SecretKeys(), key) {
			c.secrets.Enqueue(key)
		}
	}
	c.enqueue(class)
}

func (c *Controller) classGone(obj any) {
	class, ok := family.Last[*v1alpha1.MachineClass](obj)
	if !ok {
		return
	}
	c.classes.Forget(class.UID)
	for _, key := range class.SecretKeys() {
		c.secrets.Enqueue(key)
	}
}
