package approver

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned"
)

// retry is the time between two attempts for a request that has to wait, or for which an API server
// has failed.
const retry = time.Second

// Config configures an approver. All fields are required.
type Config struct {
	// Target is the cluster that VMs join, and Machines reads in the one with the Machine objects.
	Target   kubernetes.Interface
	Machines machineclient.Interface
	Clock    clock.WithTicker
	Log      *slog.Logger
}

// Run decides about every request until ctx ends. Errors: the watch cannot be prepared.
func Run(ctx context.Context, cfg Config) error {
	factory := informers.NewSharedInformerFactory(cfg.Target, 0)
	requests := factory.Certificates().V1().CertificateSigningRequests()
	changed := make(chan struct{}, 1)
	note := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	_, err := requests.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: note, UpdateFunc: func(_, obj any) { note(obj) }})
	if err != nil {
		return fmt.Errorf("watch certificate requests: %w", err)
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	ticker := cfg.Clock.NewTicker(retry)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ticker.C():
		}
		cfg.lookAtAll(ctx, requests.Lister())
	}
}

// lookAtAll looks at the requests as they are now. Had each change a place in a queue, old ones
// would delay the new ones where API servers are slow.
func (cfg Config) lookAtAll(ctx context.Context, requests listers.CertificateSigningRequestLister) {
	all, err := requests.List(labels.Everything())
	if err != nil {
		cfg.Log.Error("Failed to read the cache of certificate requests", "err", err)
	}
	for _, request := range all {
		if err := cfg.look(ctx, request); err != nil && ctx.Err() == nil {
			cfg.Log.Warn("Certificate request is not decided yet; trying again", "request", request.Name, "err", err)
		}
	}
}

// look decides about a request, if it is for this approver, and writes the decision.
func (cfg Config) look(ctx context.Context, request *certificatesv1.CertificateSigningRequest) error {
	name, ok := tokenOf(request)
	if !ok {
		return nil
	}
	f := facts{now: cfg.Clock.Now(), request: request}
	var err error
	if f.token, err = found(cfg.Target.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})); err != nil {
		return fmt.Errorf("read the bootstrap token: %w", err)
	}
	if f.token != nil {
		namespace, machine := machineOf(f.token)
		if f.machine, err = found(cfg.Machines.MachineV1alpha1().Machines(namespace).Get(ctx, machine, metav1.GetOptions{})); err != nil {
			return fmt.Errorf("read the machine: %w", err)
		}
	}
	if node, err := nodeOf(request); err == nil {
		if f.machine != nil && f.machine.Labels[v1alpha1.LabelNode] == node {
			selector := labels.SelectorFromSet(labels.Set{v1alpha1.LabelNode: node}).String()
			others, err := cfg.Machines.MachineV1alpha1().Machines(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: selector})
			if err != nil {
				return fmt.Errorf("list the machines that name the Node: %w", err)
			}
			f.others = others.Items
		}
		if f.node, err = found(cfg.Target.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})); err != nil {
			return fmt.Errorf("read the Node: %w", err)
		}
	}
	decided, why := decide(f)
	if decided == wait {
		return nil
	}
	return cfg.write(ctx, request, decided, why)
}

func (cfg Config) write(ctx context.Context, request *certificatesv1.CertificateSigningRequest, decided verdict, why string) error {
	condition := certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "NotTheMachinesNode", Message: why,
		LastUpdateTime: metav1.NewTime(cfg.Clock.Now()),
	}
	if decided == approve {
		condition.Type, condition.Reason = certificatesv1.CertificateApproved, "MachinesNode"
	}
	cfg.Log.Info("Decided certificate request", "request", request.Name, "condition", condition.Type, "why", why)
	request = request.DeepCopy()
	request.Status.Conditions = append(request.Status.Conditions, condition)
	_, err := cfg.Target.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, request.Name, request, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the decision: %w", err)
	}
	return nil
}

// found returns nil for an object that does not exist.
func found[T any](object *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return object, nil
}
