package replica

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/access"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/bynamespace"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/requests"
)

// OpenTarget connects a command, which has no session, to the target cluster that the Secrets of a
// namespace name, by the rules of a replica, until release is called. Errors: a Secret that is
// missing or invalid, a cluster that does not answer, or another one than the namespace had.
func OpenTarget(
	ctx context.Context, control kubeclient.Interface, of TargetOptions, namespace string,
) (nodes metadata.Interface, release func(), err error) {
	budgets, err := requests.New(requests.Config{Total: 1, Clock: clock.RealClock{}})
	if err != nil {
		return nil, nil, err
	}
	defaults := DefaultOptions()
	targets, err := bynamespace.New(bynamespace.Config{
		Secrets: control.CoreV1(), Select: of.Select, Policy: access.Policy{Refused: of.Refused}, Budgets: budgets, Clock: clock.RealClock{},
		BlindAfter: defaults.Fleet.Durations.BlindAfter, OutageAfter: defaults.Safety.StatusCheckTimeout,
		Connect: func(_ string, config *rest.Config, _ transport.WrapperFunc) (*bynamespace.Link, error) { // its requests have no budget
			var errs [2]error
			client, err := kubeclient.New(config)
			errs[0] = err
			nodes, errs[1] = metadata.NewForConfig(config)
			return &bynamespace.Link{Cluster: target.New(client)}, errors.Join(errs[:]...)
		},
		Identify: func(ctx context.Context, namespace string, cluster types.UID) error {
			lease, err := control.CoordinationV1().Leases(namespace).Get(ctx, targetLease, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				return nil // no replica has connected to it
			case err != nil:
				return fmt.Errorf("read Lease %s: %w", targetLease, err)
			}
			return isSame(lease, cluster)
		},
	})
	if err != nil {
		return nil, nil, err
	}
	_, release, err = targets.Open(ctx, namespace)
	return nodes, release, err
}
