package machine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
)

// evidenceTimeout bounds the call that asks for the VM of an unreachable Node: the pass has its
// machine fail, when its time is over, only after it.
const evidenceTimeout = 10 * time.Second

// evidenceRetry is after what time the cloud may be asked again, when it has not answered.
const evidenceRetry = time.Minute

// evidence contains what the cloud has reported of the VM of a machine, which was unhealthy since a
// time. The zero value means that the cloud was not asked.
type evidence struct {
	since time.Time
	text  string
	again time.Time // when the cloud may be asked again; zero after an answer
}

// observeEvidence records what the cloud has reported since the machine is unhealthy, and whether
// it may be asked.
func (v *vms) observeEvidence(p *pass) {
	m, now := p.world.Machine, v.own.Now()
	was, since := v.memory.of(m.UID).evidence, m.Status.CurrentStatus.LastUpdateTime.Time
	may := true
	if was != (evidence{}) && was.since.Equal(since) {
		p.world.Evidence.Text = was.text
		may = !was.again.IsZero() && !now.Before(was.again)
	}
	p.world.Evidence.MayAsk = may && v.asked.Wait(m.Namespace, now) == 0
}

// ask asks the cloud for the VM of a machine whose Node is unreachable. A machine is as unhealthy
// without the answer: what prevents it, as an API server that does not show the Secrets or a driver
// that panics, is no error of the pass. Errors: the end of ctx or of the ownership.
func (v *vms) ask(ctx context.Context, p *pass) error {
	m := p.world.Machine
	p.world.Evidence.MayAsk = false
	v.asked.Count(m.Namespace, v.own.Now())
	err := v.askForVM(ctx, p)
	failure := p.world.Failure
	answered := lifecycle.EvidenceOf(p.world)
	p.world.Failure, p.held = nil, false // the machine does not wait for this call
	switch {
	case ctx.Err() != nil, runner.NotOurs(err):
		return err
	case failure != nil && failure.Held:
		p.again = failure.RetryAfter
		return nil
	case err != nil && failure == nil: // no call was sent
		klog.FromContext(ctx).V(2).Info("Did not look for the VM of an unreachable Node", "reason", fmt.Sprint(err))
		return nil
	}
	p.world.Evidence.Text = answered
	is := evidence{since: m.Status.CurrentStatus.LastUpdateTime.Time, text: answered}
	if failure != nil {
		is.again = v.own.Now().Add(evidenceRetry)
	}
	v.memory.change(m.UID, func(r *remembered) { r.evidence = is })
	return nil
}

func (v *vms) askForVM(ctx context.Context, p *pass) (err error) {
	if !p.world.Secret.Read {
		if err := v.classes.readSecrets(ctx, p); err != nil {
			return err
		}
	}
	if p.world.Secret.Missing != "" {
		return fmt.Errorf("secret %q does not exist", p.world.Secret.Missing)
	}
	call, cancel := context.WithTimeout(ctx, evidenceTimeout)
	defer cancel()
	defer func() {
		if fault := recover(); fault != nil {
			klog.FromContext(ctx).Error(nil, "Driver panicked while it looked for the VM of an unreachable Node", "panic",
				fmt.Sprint(fault), "stack", string(debug.Stack()))
			p.world.Failure, err = &lifecycle.Failure{Code: driver.Internal}, nil
		}
	}()
	err = v.call(call, p, lifecycle.Verdict{Do: lifecycle.FindVM})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		p.world.Failure, err = &lifecycle.Failure{Code: driver.DeadlineExceeded}, nil
	}
	return err
}
