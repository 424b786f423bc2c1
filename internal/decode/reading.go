package decode

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// mostPages is how many pages one list has at most, and mostEmpty how many of them have no object,
// which API servers may send if none of a page is selected.
const mostPages, mostEmpty = 10_000, 10

// EndlessError means that a list has more pages or bytes than it may have.
type EndlessError struct{ Why string }

func (e *EndlessError) Error() string {
	return fmt.Sprintf("expected a list that ends, got one with %s: the API server, or a proxy before it, has other pages than Kubernetes",
		e.Why)
}

type bytesKey struct{}

// AtMost returns a context in which each list reads answers of together about that many bytes at
// most, from an API server that may send any. Lists without it are bounded in pages only.
func AtMost(ctx context.Context, bytes int64) context.Context {
	return context.WithValue(ctx, bytesKey{}, bytes)
}

// Reading counts the pages of one list. NewReading returns one.
type Reading struct {
	most, limit  int64 // objects of a page: of any, and of the next
	pages, empty int
	bytes        int64
	mostBytes    int64 // 0 is no bound
}

// NewReading returns the begin of a list, of which a page has at most so many objects. ctx has the
// bound of AtMost.
func NewReading(ctx context.Context, most int64) *Reading {
	bytes, _ := ctx.Value(bytesKey{}).(int64)
	return &Reading{most: most, limit: most, mostBytes: bytes}
}

// note counts a page of a list, with what could not be decoded and its bytes. Errors:
// *EndlessError, if another page follows.
func (r *Reading) note(page any, undecodable, bytes int) error {
	r.pages++
	r.bytes += int64(bytes)
	if bytes < PageBytes/step {
		r.limit = min(r.limit*step, r.most)
	}
	list, isObject := page.(runtime.Object)
	if !isObject {
		return nil
	}
	if undecodable == 0 && meta.LenList(list) == 0 {
		r.empty++
	}
	if accessor, err := meta.ListAccessor(list); err != nil || accessor.GetContinue() == "" {
		return nil //nolint:nilerr // what is no list has no other page
	}
	switch {
	case r.empty > mostEmpty:
		return &EndlessError{fmt.Sprintf("more than %d pages without objects", mostEmpty)}
	case r.pages >= mostPages:
		return &EndlessError{fmt.Sprintf("more than %d pages", mostPages)}
	case r.mostBytes > 0 && r.bytes > r.mostBytes:
		return &EndlessError{fmt.Sprintf("more than %d MiB of answers", r.mostBytes>>20)}
	}
	return nil
}
