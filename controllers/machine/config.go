package machine

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/credentials"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// Config configures a Controller. Validate has the fields that are required.
type Config struct {
	// Machines and Secrets write to the control cluster.
	Machines machineclient.MachineV1alpha1Interface
	Secrets  corev1client.SecretsGetter
	// Metadata reads which namespaces may use a Secret, and lists machines, both from the API server.
	// Namespace is the only namespace whose machines are listed; "" means all.
	Metadata  metadata.Interface
	Namespace string
	// View has the objects of the control cluster that this process reconciles.
	View    *objectcache.View
	Targets target.Resolver
	// Servers contains what this process knows of API servers. DrainConfirm is how long requests for a
	// drain have to fail before a drain whose time is over is given up, so that an outage is detected
	// before; 0 where no server is checked.
	Servers      target.Servers
	DrainConfirm time.Duration
	Drivers      *driver.Registry
	// ControlCluster returns the ID of the control cluster, or "" while it is not known; see
	// driver.Target. nil means that it never is.
	ControlCluster func() string
	Events         events.EventRecorder
	// Deletions records why VMs, Nodes and Machines are deleted.
	Deletions *deletion.Recorder
	// Sets has the versions of MachineSets that this process has written. With nil, only the cached
	// ones are used.
	Sets   *patch.Latest[*v1alpha1.MachineSet]
	Limits lifecycle.Limits
	// IsUnlabeled reports whether the target cluster has a Node of that name without a valid slot
	// label, which Targets does not show; nil means that it never has. The component that detects such
	// a Node calls NodeAppeared.
	IsUnlabeled func(node string) bool
	// NoComponentsTaint reports whether Nodes that were updated in place do not get the taint
	// critical-components-not-ready. The annotation of a machine's root overrides it.
	NoComponentsTaint bool
	// BootstrapTokenGroups are the auth-extra-groups of bootstrap tokens; "" means none.
	BootstrapTokenGroups string
	// BootstrapTokenSigning reports whether bootstrap tokens may be used for signing, too. VMs need
	// that if they discover their cluster by the token.
	BootstrapTokenSigning bool
	// FirstConfig returns the values of the placeholders of machine configuration for a machine.
	// problem is why there are none, as a sentence for the machine's status; a change of which
	// FirstConfigChanged must report. Nil where there is no machine configuration.
	FirstConfig func(ctx context.Context, m *v1alpha1.Machine) (values map[string]string, problem string, err error)
	// Called receives each call of a driver that has ended: its class, when it began by the clock of
	// the process, and its error. It must return at once; it may be nil.
	Called func(class *v1alpha1.MachineClass, began time.Time, err error)
	Clock  clock.WithTickerAndDelayedExecution
	Gate   runner.Gate[types.NamespacedName]
	// GoneGate admits machines that are gone; nil admits all.
	GoneGate runner.Gate[credentials.Gone]
	// Workers is how many machines of a namespace are reconciled at the same time, and how many calls
	// of a driver are in flight with one set of credentials. Of all namespaces together,
	// runner.TenantsAtOnce times as many machines are reconciled.
	Workers int
	Metrics *runner.Metrics
	Tracer  trace.Tracer
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error {
	return required.Fields(c,
		"Namespace", "Servers", "DrainConfirm", "ControlCluster", "Sets", "Limits", "IsUnlabeled", "BootstrapTokenGroups", "FirstConfig",
		"Called",
		"Gate", "GoneGate", "Workers", "Metrics", "Tracer",
	)
}
