package template

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
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render/merge"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/template/expand"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/configcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/secretwatch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// ReadEvery is the time between two reads of a folder with templates. The kubelet, too, updates a
// volume with a ConfigMap each minute.
const ReadEvery = time.Minute

// Reasons of the conditions of the ControllerConfig.
const (
	reasonRendered  = "Rendered"
	reasonRendering = "Rendering"
	reasonFailed    = "RenderingFailed"
)

// Config is the configuration of the controller. All fields but Extensions, Gate, Share, Workers,
// Metrics and Tracer are required.
type Config struct {
	Client fleetclient.FleetV1alpha1Interface
	Cache  *configcache.Cache
	// Configs writes MachineConfigs.
	Configs *configcache.Writer
	// Secrets reads the Secret that the ControllerConfig names, in the target cluster.
	Secrets   corev1client.SecretsGetter
	Templates Source
	// Extensions are the names of extensions that exist.
	Extensions []string

	Events  events.EventRecorder
	Gate    runner.Gate[types.NamespacedName]
	Share   *runner.Share
	Clock   clock.WithTicker
	Metrics *runner.Metrics
	Tracer  trace.Tracer
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error {
	return required.Fields(c, "Extensions", "Gate", "Share", "Metrics", "Tracer")
}

// Controller renders templates. Create one with New.
type Controller struct {
	cfg      Config
	controls *patch.Committer[*v1alpha1.ControllerConfig]
	secrets  *secretwatch.Watches
	queue    runner.Queue
}

// New returns the controller and registers its handlers with the Cache. Errors: those of
// Config.Validate.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	secrets, err := secretwatch.New(secretwatch.Config{Client: cfg.Secrets, Clock: cfg.Clock, Changed: func(types.NamespacedName) {}})
	if err != nil {
		return nil, err
	}
	c := &Controller{
		cfg: cfg, secrets: secrets,
		controls: patch.New(func(string) patch.Patcher[*v1alpha1.ControllerConfig] { return cfg.Client.ControllerConfigs() }),
	}
	c.queue, err = runner.QueueOf(cfg.Share, runner.Config[types.NamespacedName]{
		Name:      runner.MachineConfigTemplate,
		LogKey:    telemetry.KeyControllerConfig,
		Reconcile: c.reconcile,
		Gate:      cfg.Gate,
		Clock:     cfg.Clock,
		Metrics:   cfg.Metrics,
		Tracer:    cfg.Tracer,
	})
	if err != nil {
		return nil, err
	}
	cfg.Cache.OnControllerConfig(func(before, after *v1alpha1.ControllerConfig) {
		if after == nil {
			c.controls.Forget(before.UID)
			c.secrets.Forget(before.UID)
		} else {
			c.leaveIfLost(after)
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
	defer running.Wait()
	running.Go(func() { c.cfg.Templates.Run(ctx, c.enqueue) })
	running.Go(func() { c.secrets.Run(ctx) })
	c.queue.Run(ctx)
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
	defer c.leaveIfLost(cached)
	config := c.controls.Newest(cached)
	switch c.cfg.Cache.Standing(config) {
	case configcache.Own:
	case configcache.Unclaimed:
		return runner.Result{}, c.claim(ctx, config) // an event
	case configcache.OfOther:
		return runner.Result{}, nil
	}
	sources, isWatched, err := c.cfg.Templates.Read()
	again := runner.Result{}
	if !isWatched {
		again.RequeueAfter = ReadEvery
	}
	if err != nil {
		return again, c.fail(ctx, config, err)
	}
	if sources == nil {
		return runner.Result{}, nil // not listed yet; it is enqueued then
	}
	secret, wait, err := c.pullSecret(ctx, config)
	again.RequeueAfter = machinefacts.Sooner(again.RequeueAfter, wait)
	if err != nil {
		return again, c.fail(ctx, config, err)
	}
	all, err := expand.Render(expand.World{
		Sources: sources, Config: config, PullSecret: secret,
		Fleet: merge.Fleet{OSImageURL: config.Spec.OSImageURL, Extensions: c.cfg.Extensions},
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

// claim claims the ControllerConfig for the namespace.
func (c *Controller) claim(ctx context.Context, config *v1alpha1.ControllerConfig) error {
	claimed := config.DeepCopy()
	c.cfg.Cache.Claim(&claimed.ObjectMeta)
	_, err := c.controls.Commit(ctx, config, claimed)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the namespace that the ControllerConfig is for: %w", err)
	}
	return nil
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

// leaveIfLost ends the watch of the Secret if the ControllerConfig is not this replica's any more.
func (c *Controller) leaveIfLost(config *v1alpha1.ControllerConfig) {
	if !c.cfg.Cache.OwnsControllerConfig() {
		c.secrets.Forget(config.UID)
	}
}

// pullSecret returns the content of the Secret that the ControllerConfig names; "" if it names
// none. The Secret is watched from now on. again is the time after which it has to be read although
// it is; 0 is never.
func (c *Controller) pullSecret(ctx context.Context, config *v1alpha1.ControllerConfig) (content string, again time.Duration, err error) {
	ref := config.Spec.PullSecretRef
	if ref == nil {
		c.secrets.Forget(config.UID)
		return "", 0, nil
	}
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	secret, err := c.cfg.Secrets.Secrets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return "", ReadEvery, fmt.Errorf("read Secret %s that spec.pullSecretRef names: %w", key, err)
	}
	seen := ""
	if err == nil {
		seen = secretwatch.Print(secret)
	}
	again = c.secrets.Await(config.UID, map[types.NamespacedName]string{key: seen}, c.enqueue)
	switch {
	case err != nil:
		return "", again, fmt.Errorf("read Secret %s that spec.pullSecretRef names: %w", key, err)
	case secret.Type != corev1.SecretTypeDockerConfigJson:
		//nolint:staticcheck // Secret is the kind
		return "", again, fmt.Errorf("Secret %s that spec.pullSecretRef names must have the type %s, got %q",
			key, corev1.SecretTypeDockerConfigJson, secret.Type)
	}
	return string(secret.Data[corev1.DockerConfigJsonKey]), again, nil
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

// write writes the three conditions: that which the reason belongs to is True, the others are
// False.
func (c *Controller) write(
	ctx context.Context, config *v1alpha1.ControllerConfig, reason, message string,
) (*v1alpha1.ControllerConfig, error) {
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
