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

// reportPause is the time between two reports of errors in the status of a machine. Each report is
// a write, which enqueues the machine at once: without a pause, errors whose texts differ each time
// would cause passes without end.
const reportPause = time.Minute

// lastingError is for how long errors of API servers have kept a machine from its next step.
type lastingError struct {
	since    time.Time
	reported time.Time // last; zero for not yet
}

// reportError returns an error of an API server, so that the pass ends with it and is retried. If
// errors have lasted for reportAfter, it reports the error in the machine's status first.
func (w *writer) reportError(ctx context.Context, p *pass, err error) error {
	if err == nil || ctx.Err() != nil || runner.NotOurs(err) || apierrors.IsConflict(err) {
		return err
	}
	m, now := p.world.Machine, w.own.Now()
	var t lastingError
	w.memory.change(m.UID, func(is *remembered) {
		if is.lastingError.since.IsZero() {
			is.lastingError.since = now
		}
		t = is.lastingError
	})
	if now.Sub(t.since) < reportAfter || now.Sub(t.reported) < reportPause {
		return err
	}
	w.outages.observe(p)
	p.world.PassError = &lifecycle.PassError{Code: codeOfAPI(err), Message: err.Error()}
	if failed := w.save(ctx, p, lifecycle.Decide(p.world)); failed != nil {
		return errors.Join(err, failed)
	}
	t.reported = now
	w.memory.change(m.UID, func(is *remembered) { is.lastingError = t })
	return err
}

// codeOfAPI returns the code that a driver has for an error like this one of an API server.
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
