package bridge

import (
	"context"
	"errors"

	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// failure returns an error of a driver of Machine Controller Manager with its code, which has the
// same number here; nil for nil. An error without a code is Unknown, and what a driver returns
// after its context has ended is the end of that.
func failure(ctx context.Context, op driver.Op, err error) error {
	if err == nil {
		return nil
	}
	if own, ok := errors.AsType[*driver.Error](err); ok {
		return own
	}
	if ctx.Err() != nil {
		return ended(ctx, op)
	}
	coded, ok := errors.AsType[*status.Status](err)
	if !ok {
		return driver.Errorf(op, driver.Unknown, "%w", err)
	}
	code := driver.Code(coded.Code())
	if code == driver.OK || int(coded.Code()) >= len(driver.Codes()) {
		code = driver.Unknown
	}
	return driver.Errorf(op, code, "%s", coded.Message())
}

// ended is the error of a call whose context has ended.
func ended(ctx context.Context, op driver.Op) error {
	code := driver.DeadlineExceeded
	if errors.Is(ctx.Err(), context.Canceled) {
		code = driver.Canceled
	}
	return driver.Errorf(op, code, "the driver did not answer: %w", context.Cause(ctx))
}
