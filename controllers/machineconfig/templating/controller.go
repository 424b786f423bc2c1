package templating

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	fleetclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/configcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/generated"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/template"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/telemetry"
)

// Name of the controller in metrics, logs and spans.
const Name = "machineconfig-template"

// ReadEvery is the time between two reads of what is not watched: the Secret that the ControllerConfig names, and a folder with templates.
const ReadEvery = time.Minute

// Reasons of the conditions of the ControllerConfig.
const (
	reasonRendered  = "Rendered"
	reasonRendering = "Rendering"
	reasonFailed    = "RenderingFailed"
)

// Config is the configuration of the controller. All fields but Extensions, Gate, Workers, Metrics and Tracer are required.
type Config struct {
	Client fleetclient.FleetV1alpha1Interface
	Cache  *configcache.Cache
	// Configs writes MachineConfigs.
	Configs *generated.Writer
	// Secrets reads the Secret that the ControllerConfig names, in the target cluster.
	Secrets   corev1client.SecretsGetter
	Templates Source
	// Extensions are the names of extensions that exist.
	Extensions []string

	Events  events.EventRecorder
	Gate    runner.Gate[types.NamespacedName]
	Clock   clock.WithTicker
	Metrics *runner.Metrics
	Tracer  trace.Tracer
}

// Controller renders templates. Make one with New.
type Controller struct {
	cfg      Config
	controls *patch.Committer[*v1alpha1.ControllerConfig]
	queue    *runner.Runner[types.NamespacedName]
}

// New returns the controller and registers its handlers with the Cache.
func New(cfg Config) (*Controller, error) {
	c := &Controller{
		cfg:      cfg,
		controls: patch.New(func(string) patch.Patcher[*v1alpha1.ControllerConfig] { return cfg.Client.ControllerConfigs() }),
	}
	var err error
	c.queue, err = runner.New(runner.Config[types.NamespacedName]{
		Name: Name, LogKey: telemetry.KeyControllerConfig, Reconcile: c.reconcile, Gate: cfg.Gate, Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer,
	})
	if err != nil {
		return nil, err
	}
	cfg.Cache.OnControllerConfig(func(before, after *v1alpha1.ControllerConfig) {
		if after == nil {
			c.controls.Forget(before.UID)
		}
		c.enqueue()
	})
	cfg.Cache.OnMachineConfig(func(before, after *v1alpha1.MachineConfig) {
		if before != nil && isGenerated(before) || after != nil && isGenerated(after) {
			c.enqueue()
		}
	})
	return c, nil
}

func (c *Controller) enqueue() {
	c.queue.Enqueue(types.NamespacedName{Name: v1alpha1.ControllerConfigName})
}

// Run reconciles until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.cfg.Templates.Run(ctx, c.enqueue) })
	running.Go(func() { c.queue.Run(ctx) })
	running.Wait()
}

func isGenerated(c *v1alpha1.MachineConfig) bool {
	return c.Annotations[v1alpha1.AnnotationGeneratedBy] == v1alpha1.GeneratedFromTemplate
}

// reconcile renders all templates and keeps their MachineConfigs.
func (c *Controller) reconcile(ctx context.Context, _ types.NamespacedName) (runner.Result, error) {
	if !c.cfg.Cache.Ready() {
		return runner.Result{}, nil // it is enqueued again when the cache is ready
	}
	cached := c.cfg.Cache.ControllerConfig()
	if cached == nil || cached.DeletionTimestamp != nil {
		return runner.Result{}, nil // the MachineConfigs are deleted with their owner
	}
	config := c.controls.Newest(cached)
	sources, isWatched, err := c.cfg.Templates.Read()
	if err != nil {
		return runner.Result{RequeueAfter: ReadEvery}, c.fail(ctx, config, err)
	}
	if sources == nil {
		return runner.Result{}, nil // not listed yet; it is enqueued then
	}
	again := runner.Result{}
	if !isWatched || config.Spec.PullSecretRef != nil {
		again.RequeueAfter = ReadEvery
	}
	secret, err := c.pullSecret(ctx, config)
	if err != nil {
		return again, c.fail(ctx, config, err)
	}
	all, err := template.Render(template.World{
		Sources: sources, Config: config, PullSecret: secret,
		Fleet: render.Fleet{OSImageURL: config.Spec.OSImageURL, Extensions: c.cfg.Extensions},
	})
	if err != nil {
		return again, c.fail(ctx, config, err)
	}
	if config.Status.ObservedGeneration != config.Generation {
		if config, err = c.write(ctx, config, reasonRendering, "The templates are being rendered."); err != nil {
			return runner.Result{}, err
		}
	}
	if err := c.keep(ctx, config, all); err != nil {
		return runner.Result{}, err
	}
	_, err = c.write(ctx, config, reasonRendered, fmt.Sprintf("%d MachineConfigs are as %d templates result in.", len(all), len(sources)))
	return again, err
}

// keep writes what differs, and deletes MachineConfigs of templates that are none of those.
func (c *Controller) keep(ctx context.Context, config *v1alpha1.ControllerConfig, all []*v1alpha1.MachineConfig) error {
	owner := *metav1.NewControllerRef(config, v1alpha1.SchemeGroupVersion.WithKind("ControllerConfig"))
	wanted := map[string]bool{}
	for _, want := range all {
		wanted[want.Name] = true
		want.OwnerReferences = []metav1.OwnerReference{owner}
		existing, exists := c.cfg.Cache.MachineConfig(want.Name)
		var err error
		if exists {
			err = c.cfg.Configs.Keep(ctx, existing, want)
		} else {
			err = c.cfg.Configs.Create(ctx, want)
		}
		if err != nil {
			return err
		}
	}
	for _, existing := range c.cfg.Cache.MachineConfigs() {
		if isGenerated(existing) && !wanted[existing.Name] {
			if err := c.cfg.Configs.Delete(ctx, existing); err != nil {
				return err
			}
		}
	}
	return nil
}

// pullSecret returns the content of the Secret that the ControllerConfig names; "" if it names none.
func (c *Controller) pullSecret(ctx context.Context, config *v1alpha1.ControllerConfig) (string, error) {
	ref := config.Spec.PullSecretRef
	if ref == nil {
		return "", nil
	}
	secret, err := c.cfg.Secrets.Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return "", fmt.Errorf("read Secret %s/%s that spec.pullSecretRef names: %w", ref.Namespace, ref.Name, err)
	case secret.Type != corev1.SecretTypeDockerConfigJson:
		return "", fmt.Errorf("Secret %s/%s that spec.pullSecretRef names must have the type %s, got %q", ref.Namespace, ref.Name, corev1.SecretTypeDockerConfigJson, secret.Type) //nolint:staticcheck // Secret is the kind
	}
	return string(secret.Data[corev1.DockerConfigJsonKey]), nil
}

// fail records why nothing can be rendered. Errors: those of the request.
func (c *Controller) fail(ctx context.Context, config *v1alpha1.ControllerConfig, why error) error {
	text := bounded.Text(why.Error(), bounded.Message)
	was := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.TemplatesFailing)
	after, err := c.write(ctx, config, reasonFailed, text)
	if err == nil && (was == nil || was.Status != metav1.ConditionTrue || was.Message != text) {
		telemetry.Emit(ctx, c.cfg.Events, after, machinev1alpha1.EventTemplatesFailing, text)
	}
	return err
}

// write writes the three conditions: that which the reason belongs to is True, the others are False.
func (c *Controller) write(ctx context.Context, config *v1alpha1.ControllerConfig, reason, message string) (*v1alpha1.ControllerConfig, error) {
	desired := config.DeepCopy()
	desired.Status.ObservedGeneration = config.Generation
	types := map[string]string{
		v1alpha1.TemplatesRunning: reasonRendering, v1alpha1.TemplatesCompleted: reasonRendered, v1alpha1.TemplatesFailing: reasonFailed,
	}
	for _, kind := range slices.Sorted(maps.Keys(types)) {
		condition := metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message,
			ObservedGeneration: config.Generation, LastTransitionTime: metav1.NewTime(c.cfg.Clock.Now()),
		}
		if types[kind] == reason {
			condition.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&desired.Status.Conditions, condition)
	}
	after, err := c.controls.Commit(ctx, config, desired)
	switch {
	case apierrors.IsNotFound(err):
		return config, nil
	case err != nil:
		return nil, fmt.Errorf("write the status of the ControllerConfig: %w", err)
	}
	if reason == reasonRendered && !meta.IsStatusConditionTrue(config.Status.Conditions, v1alpha1.TemplatesCompleted) {
		klog.FromContext(ctx).Info("Rendered templates", "message", message)
	}
	return after, nil
}
