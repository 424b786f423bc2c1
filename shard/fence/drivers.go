package fence

import (
	"context"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// Driver puts the Fence before every call of a driver. A refusal is driver.Canceled, with a
// *RefusedError as its cause. A call that only reads may be sent under no ownership; under one it
// is counted, and refused, like the others.
func (f *Fence) Driver(d driver.Driver) driver.Driver {
	return driver.Around(d, func(ctx context.Context, c driver.Call, next func(context.Context) error) error {
		owned, a := ownershipOf(ctx), actionOf(c.Op)
		if owned.kind == none && a == read {
			return next(ctx)
		}
		what := string(c.Op)
		if m := c.Target.Machine; m != nil {
			what += " " + m.Namespace + "/" + m.Name
		}
		done, why := f.begin(owned, a)
		if why != "" {
			return &driver.Error{Code: driver.Canceled, Op: c.Op, Err: f.refuse(what, owned, why)}
		}
		defer done()
		if ctx.Err() != nil { // the driver need not look
			return &driver.Error{Code: driver.Canceled, Op: c.Op, Err: context.Cause(ctx)}
		}
		late, answered := f.faultPoint.here(ctx, what, owned)
		err := next(late)
		answered()
		return err
	})
}

// actionOf returns what a call does. One that is not known changes something.
func actionOf(op driver.Op) action {
	switch op { //nolint:exhaustive // the others change something
	case driver.OpCreate:
		return create
	case driver.OpStatus, driver.OpList, driver.OpVolumeIDs, driver.OpResources:
		return read
	}
	return call
}
