package credentials

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
)

// Gone is a machine that the cache does not show any more and that may have left its bootstrap
// token behind. In most cases its finalizer was removed by hand: a machine that is deleted in order
// has its token deleted first.
type Gone struct {
	types.NamespacedName

	UID types.UID
	// Slot is the slot label that the machine had.
	Slot string
	// Until is when all of its tokens have expired, in seconds since 1970.
	Until int64
}

// String is the key in logs and traces.
func (g Gone) String() string { return g.NamespacedName.String() + " " + string(g.UID) }

// Sweep deletes the bootstrap tokens of a machine that does not exist any more, by a live read. The
// names of the tokens are derived from the machine's UID, so the fleet needs no right to list the
// Secrets of kube-system. The token of a machine that vanishes while no replica watches it expires.
// Errors: the target cluster, and the requests.
func (t *Tokens) Sweep(ctx context.Context, gone Gone) (runner.Result, error) {
	cluster, err := t.cfg.Targets.For(gone.Namespace)
	if err != nil {
		return runner.Result{}, fmt.Errorf("find the target cluster of namespace %s: %w", gone.Namespace, err)
	}
	if cluster == nil || t.cfg.Clock.Now().Unix() > gone.Until {
		return runner.Result{}, nil
	}
	live, err := t.cfg.Machines.Machines(gone.Namespace).Get(ctx, gone.Name, metav1.GetOptions{})
	if failure, undecodable := decode.FailureOf(err); undecodable {
		live, err = &v1alpha1.Machine{ObjectMeta: failure.ObjectMeta}, nil
	}
	switch {
	case apierrors.IsNotFound(err): // and no other machine has its name
	case err != nil:
		return runner.Result{}, fmt.Errorf("read machine %s, which may have left a bootstrap token: %w", gone.NamespacedName, err)
	case live.UID == gone.UID:
		return runner.Result{}, nil
	}
	if err := deleteTokens(ctx, cluster.Client, gone.UID); err != nil {
		return runner.Result{}, err
	}
	klog.FromContext(ctx).V(2).Info("Deleted the bootstrap tokens, if any, of a machine that does not exist any more",
		"machine", klog.KRef(gone.Namespace, gone.Name), "uid", gone.UID)
	return runner.Result{}, nil
}
