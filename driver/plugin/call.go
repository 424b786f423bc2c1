package plugin

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	driverv1 "github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin/v1"
)

// answer is a message that can have a failure.
type answer interface{ GetFailure() *driverv1.Failure }

// invoke sends one call. The answer may be used together with the error, if the driver itself has
// failed; else it is nil.
func invoke[Req any, Answer answer](
	ctx context.Context, c *Client, op driver.Op, method func(context.Context, Req, ...grpc.CallOption) (Answer, error), req Req,
) (got Answer, err error) {
	ctx, cancel, err := c.begin(ctx, op)
	if err != nil {
		return got, err
	}
	defer cancel()
	received, err := method(ctx, req)
	if err != nil {
		return got, c.unanswered(ctx, op, err)
	}
	return received, fromFailure(op, received.GetFailure())
}

// begin returns the context of a call, with a deadline and metadata, when the driver may be called.
func (c *Client) begin(ctx context.Context, op driver.Op) (context.Context, context.CancelFunc, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	if err := ctx.Err(); err != nil {
		cancel()
		return nil, nil, c.unanswered(ctx, op, err)
	}
	if err := c.agree(ctx); err != nil {
		err = c.unanswered(ctx, op, err)
		cancel()
		return nil, nil, err
	}
	var owned bool
	var o Ownership
	if c.settings.Ownership != nil {
		o, owned = c.settings.Ownership(ctx)
	}
	return withMetadata(ctx, o, owned, c.settings), cancel, nil
}

// unanswered returns the error of a call that the driver did not answer. Its effect is not known,
// and its code never says anything about a VM.
func (c *Client) unanswered(ctx context.Context, op driver.Op, err error) error {
	if refused, ok := errors.AsType[*refusalError](err); ok {
		return driver.Errorf(op, driver.FailedPrecondition, "%w", refused)
	}
	var code driver.Code
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		code = driver.Canceled
	case ctx.Err() != nil:
		code = driver.DeadlineExceeded
	case errors.Is(err, errNotServing):
		code = driver.Unavailable
	default:
		code = codeOf(status.Code(err))
	}
	if code == driver.Unavailable {
		return driver.Pendingf(op, code, "the driver of provider %s at %s is not available: %s; see whether its process runs",
			c.settings.Provider, c.settings.Socket, causeOf(err))
	}
	if ctx.Err() != nil {
		return driver.Errorf(op, code, "the driver of provider %s at %s did not answer: %w",
			c.settings.Provider, c.settings.Socket, context.Cause(ctx))
	}
	return driver.Errorf(op, code,
		"the driver of provider %s at %s did not answer as the protocol requires, so the effect of the call is not known: %s",
		c.settings.Provider, c.settings.Socket, causeOf(err))
}

// codeOf returns the code for a status of gRPC: all but those of a process that is away, or late,
// are Unknown.
func codeOf(code codes.Code) driver.Code {
	switch code { //nolint:exhaustive // the others say nothing about a VM
	case codes.Unavailable, codes.Canceled:
		return driver.Unavailable
	case codes.DeadlineExceeded:
		return driver.DeadlineExceeded
	}
	return driver.Unknown
}

// causeOf returns the text of an error of a call.
func causeOf(err error) string {
	if s, ok := status.FromError(err); ok {
		return bounded(fmt.Sprintf("%s: %s", s.Code(), s.Message()))
	}
	return bounded(err.Error())
}

// unsendable returns the error for a request that cannot be encoded.
func unsendable(op driver.Op, err error) error {
	return driver.Errorf(op, driver.InvalidArgument, "%w", err)
}
