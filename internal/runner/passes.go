package runner

import "context"

type key struct{}

// WithMayGoOn returns a context for a pass that may go on while mayGoOn returns nil. It is called from the pass and must not block.
func WithMayGoOn(ctx context.Context, mayGoOn func() error) context.Context {
	return context.WithValue(ctx, key{}, mayGoOn)
}

// MayGoOn is to be asked between two steps of a pass, when nothing is left half done. An error says why the pass has to end
// with it; what is left is done by whoever is admitted next.
func MayGoOn(ctx context.Context) error {
	if mayGoOn, ok := ctx.Value(key{}).(func() error); ok {
		return mayGoOn()
	}
	return nil
}
