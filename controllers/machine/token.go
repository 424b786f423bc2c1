package machine

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/credentials"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
)

// tokens are the bootstrap tokens of machines.
type tokens struct {
	store  *credentials.Tokens
	gone   *runner.Runner[credentials.Gone]
	clock  clock.PassiveClock
	limits lifecycle.Limits
}

// create creates the machine's bootstrap token, or finds the one that it has.
func (t *tokens) create(ctx context.Context, p *pass) error {
	m := p.world.Machine
	token, expiry, err := t.store.Create(ctx, p.cluster, m, lifecycle.TokenLife(m, t.limits))
	if err != nil {
		return err
	}
	p.token, p.world.Token, p.world.TokenExpiry = token, lifecycle.TokenPresent, expiry
	return nil
}

// prolong keeps the token of a machine whose VM has not joined yet valid for longer.
func (t *tokens) prolong(ctx context.Context, p *pass) error {
	m := p.world.Machine
	expiry, found, err := t.store.Prolong(ctx, p.cluster, m.UID, lifecycle.TokenLife(m, t.limits))
	switch {
	case err != nil:
		return err
	case !found:
		p.world.Token = lifecycle.TokenAbsent
	default:
		p.world.Token, p.world.TokenExpiry = lifecycle.TokenPresent, expiry
	}
	return nil
}

// drop deletes the machine's bootstrap token, if there is one. It ignores an error when the time
// for the drain is over: the token expires, and a target cluster that does not exist any more would
// otherwise block the deletion of the machine.
func (t *tokens) drop(ctx context.Context, p *pass) error {
	m := p.world.Machine
	if err := t.store.Delete(ctx, p.cluster.Client, m.UID); err != nil {
		if ctx.Err() != nil || runner.NotOurs(err) || runner.Waits(err) || m.DeletionTimestamp == nil ||
			!drain.ForDeletion(m, t.limits.Drain).Under(p.world.Reach, p.world.Now).IsOver() {
			return err
		}
		klog.FromContext(ctx).Error(err, "Failed to delete bootstrap token; leaving it until it expires")
	}
	p.world.Token = lifecycle.TokenAbsent
	return nil
}

// noteGone enqueues a machine that the cache does not show any more. The machine may have moved to
// another replica, so the sweep of its token reads it live.
func (t *tokens) noteGone(m *v1alpha1.Machine) {
	if !lifecycle.MayLeaveToken(m) {
		return
	}
	t.gone.Enqueue(credentials.Gone{
		NamespacedName: types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, UID: m.UID, Slot: m.Labels[v1alpha1.LabelSlot],
		Until: t.clock.Now().Add(lifecycle.TokenLife(m, t.limits)).Unix(),
	})
}
