package safety

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

// pageSize is how many objects one request of a list returns, and so how many are in memory at a time.
const pageSize = 500

// paged is a list of the API.
type paged interface{ GetContinue() string }

// eachPage reads a list in pages, past all caches, and calls visit with each. Objects that cannot be decoded are left out.
// Errors: those of a request; then the pages so far are not the whole list.
func eachPage[L paged](ctx context.Context, what string, list func(ctx context.Context, options metav1.ListOptions) (L, error), visit func(page L)) error {
	options := metav1.ListOptions{Limit: pageSize}
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
