package machine

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/credentials"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
)

// makeToken creates the machine's bootstrap token, or finds the one that it has.
func (c *Controller) makeToken(ctx context.Context, p *pass) error {
	m := p.world.Machine
	token, expiry, err := c.tokens.Create(ctx, p.cluster, m, lifecycle.TokenLife(m, c.cfg.Limits))
	if err != nil {
		return err
	}
	p.token, p.world.Token, p.world.TokenExpiry = token, lifecycle.TokenPresent, expiry
	return nil
}

// prolongToken makes the token of a machine whose VM has not joined yet valid for longer.
func (c *Controller) prolongToken(ctx context.Context, p *pass) error {
	m := p.world.Machine
	expiry, found, err := c.tokens.Prolong(ctx, p.cluster, m.UID, lifecycle.TokenLife(m, c.cfg.Limits))
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

// dropToken deletes the machine's bootstrap token, if there is one. It ignores an error when the time for the drain is over: the token
// expires, and a target cluster that does not exist any more would otherwise block the deletion of the machine.
func (c *Controller) dropToken(ctx context.Context, p *pass) error {
	m := p.world.Machine
	if err := c.tokens.Delete(ctx, p.cluster.Client, m.UID); err != nil {
		if ctx.Err() != nil || runner.NotOurs(err) || m.DeletionTimestamp == nil || !drain.ForDeletion(m, c.cfg.Limits.Drain).Under(p.world.Reach, p.world.Now).IsOver() {
			return err
		}
		klog.FromContext(ctx).Error(err, "Failed to delete bootstrap token; leaving it until it expires")
	}
	p.world.Token = lifecycle.TokenAbsent
	return nil
}

// noteGone enqueues a machine that the cache does not show any more. The machine may have moved to another replica, so the sweep of
// its token reads it live.
func (c *Controller) noteGone(m *v1alpha1.Machine) {
	if !lifecycle.MayLeaveToken(m) {
		return
	}
	c.gone.Enqueue(credentials.Gone{
		NamespacedName: types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, UID: m.UID, Slot: m.Labels[v1alpha1.LabelSlot],
		Until: c.cfg.Clock.Now().Add(lifecycle.TokenLife(m, c.cfg.Limits)).Unix(),
	})
}
