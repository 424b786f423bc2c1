package machine

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
)

// troublePause is how long what a machine tells of its trouble stands at least. Each text is a write, which brings the machine
// back at once: errors that differ each time would have it tried without end.
const troublePause = time.Minute

// trouble is what keeps a machine from getting on.
type trouble struct {
	since    time.Time
	reported time.Time // last; zero for not yet
}

// complain returns an error of an API server, so that the pass ends with it and is tried again. If that has gone on for a
// while, the machine tells of it first.
func (c *Controller) complain(ctx context.Context, p *pass, err error) error {
	if err == nil || ctx.Err() != nil || runner.NotOurs(err) || apierrors.IsConflict(err) {
		return err
	}
	m, now := p.world.Machine, c.cfg.Clock.Now()
	var t trouble
	c.memory.change(m.UID, func(is *remembered) {
		if is.trouble.since.IsZero() {
			is.trouble.since = now
		}
		t = is.trouble
	})
	if now.Sub(t.since) < patience || now.Sub(t.reported) < troublePause {
		return err
	}
	p.world.Now, p.world.Trouble = now, &lifecycle.Trouble{Code: codeOfAPI(err), Message: err.Error()}
	if failed := c.save(ctx, p, lifecycle.Decide(p.world)); failed != nil {
		return errors.Join(err, failed)
	}
	t.reported = now
	c.memory.change(m.UID, func(is *remembered) { is.trouble = t })
	return err
}

// codeOfAPI is an error of an API server in the words that machines have for those of clouds.
func codeOfAPI(err error) driver.Code {
	switch {
	case apierrors.IsForbidden(err):
		return driver.PermissionDenied
	case apierrors.IsUnauthorized(err):
		return driver.Unauthenticated
	case apierrors.IsNotFound(err):
		return driver.NotFound
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return driver.InvalidArgument
	case apierrors.IsInternalError(err):
		return driver.Internal
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), errors.Is(err, context.DeadlineExceeded):
		return driver.DeadlineExceeded
	}
	return driver.Unavailable
}
