package machine

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
)

// evidenceTimeout bounds the call that asks for the VM of a silent Node: the pass has its machine fail, when its time is over, only after it.
const evidenceTimeout = 10 * time.Second

// evidence is what the cloud has reported of the VM of a machine, which was unhealthy since a time. The zero value means that the cloud was not asked.
type evidence struct {
	since time.Time
	text  string
}

// observeEvidence records what the cloud has reported since the machine is unhealthy, and whether it may be asked.
func (c *Controller) observeEvidence(p *pass) {
	m := p.world.Machine
	was, since := c.memory.of(m.UID).evidence, m.Status.CurrentStatus.LastUpdateTime.Time
	if was != (evidence{}) && was.since.Equal(since) {
		p.world.Evidence = lifecycle.EvidenceFact{Text: was.text}
		return
	}
	p.world.Evidence.MayAsk = c.evidence.Wait(m.Namespace, c.own.Now()) == 0
}

// askCloud asks the cloud for the VM of a machine whose Node is silent. A machine is as unhealthy without the answer: what prevents it, as an API
// server that does not show the Secrets, is no error of the pass. Errors: the end of ctx or of the ownership.
func (c *Controller) askCloud(ctx context.Context, p *pass) error {
	m := p.world.Machine
	p.world.Evidence.MayAsk = false
	c.evidence.Count(m.Namespace, c.own.Now())
	err := c.askForVM(ctx, p)
	if ctx.Err() != nil || runner.NotOurs(err) {
		return err
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cloud was not asked for the VM of a silent Node", "reason", err.Error())
	}
	p.world.Evidence.Text = lifecycle.EvidenceOf(p.world)
	p.world.Failure, p.held = nil, false // the machine does not wait for this call
	c.memory.change(m.UID, func(is *remembered) {
		is.evidence = evidence{m.Status.CurrentStatus.LastUpdateTime.Time, p.world.Evidence.Text}
	})
	return nil
}

func (c *Controller) askForVM(ctx context.Context, p *pass) error {
	if !p.world.Secret.Read {
		if err := c.readSecrets(ctx, p); err != nil {
			return err
		}
	}
	if p.world.Secret.Missing != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, evidenceTimeout)
	defer cancel()
	err := c.callDriver(ctx, p, lifecycle.Verdict{Do: lifecycle.FindVM})
	if errors.Is(err, context.DeadlineExceeded) {
		p.world.Failure = &lifecycle.Failure{Code: driver.DeadlineExceeded}
	}
	return err
}
