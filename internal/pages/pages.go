package pages

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

// Size is how many objects one request of a list returns, and so how many are in memory at a time.
const Size = 500

// Page is a part of a list.
type Page interface{ GetContinue() string }

// Each reads a list in pages, past all caches, and calls visit with each. Objects that cannot be decoded are left out. what is the kind of
// the objects, for errors.
// Errors: those of a request; then the pages so far are not the whole list.
func Each[P Page](ctx context.Context, what string, list func(ctx context.Context, options metav1.ListOptions) (P, error), visit func(page P)) error {
	options := metav1.ListOptions{Limit: Size}
	for {
		page, err := list(ctx, options)
		if _, err = decode.Missing(err); err != nil {
			return fmt.Errorf("list %s: %w", what, err)
		}
		visit(page)
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}
