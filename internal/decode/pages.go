package decode

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// PageSize is how many objects one page has at most.
	PageSize = 500
	// PageBytes is how many bytes the answer with a page of several objects has at most; one object
	// has at most 1.5 MiB.
	PageBytes = 2 << 20
	// step is the factor by which pages shrink when they are too large, and grow again.
	step = 4
)

// Page is a part of a list.
type Page interface{ GetContinue() string }

// ListPage requests a page of a list.
type ListPage[P Page] = func(ctx context.Context, options metav1.ListOptions) (P, error)

// EachPage reads a list in pages from the API server, and calls visit with each. Objects that
// cannot be decoded are left out. what is the kind of the objects, for errors. Errors: those of a
// request, *EndlessError; then the pages so far are not the whole list.
func EachPage[P Page](ctx context.Context, what string, list ListPage[P], visit func(page P)) error {
	return UntilPage(ctx, what, metav1.ListOptions{}, list, func(page P, _ []*Failure) bool {
		visit(page)
		return false
	})
}

// UntilPage reads a list in pages as EachPage does, of what the options select, until visit reports
// that it is done. undecodable are the objects of a page that cannot be decoded. A limit in the
// options is the most objects of one page, instead of PageSize. Errors: those of a request,
// *EndlessError.
func UntilPage[P Page](
	ctx context.Context, what string, options metav1.ListOptions, list ListPage[P], visit func(page P, undecodable []*Failure) (done bool),
) error {
	reading := NewReading(ctx, cmp.Or(options.Limit, PageSize))
	for {
		page, err := NextPage(ctx, reading, options, list)
		undecodable, err := Missing(err)
		if err != nil {
			return fmt.Errorf("list %s: %w", what, err)
		}
		if options.Continue = page.GetContinue(); visit(page, undecodable) || options.Continue == "" {
			return nil
		}
	}
}

// NextPage requests the next page of a list, again with fewer objects while it is too large, but
// for a page of one. Errors: those of the request, also of objects that cannot be decoded;
// *EndlessError.
func NextPage[P any](
	ctx context.Context, of *Reading, options metav1.ListOptions, list func(ctx context.Context, options metav1.ListOptions) (P, error),
) (P, error) {
	for {
		size := &meter{}
		if options.Limit = of.limit; options.Limit > 1 {
			size.most = PageBytes
		}
		page, err := list(context.WithValue(ctx, meterKey{}, size), options)
		if of.shrinks(err) {
			continue
		}
		undecodable, failed := Missing(err)
		if failed != nil {
			return page, err
		}
		if endless := of.note(page, len(undecodable), size.got); endless != nil {
			return page, endless
		}
		return page, err
	}
}

// shrinks reports whether a page is requested again with fewer objects after an error: it is too
// large. Pages with too many bytes may be followed by others; if they have too many values, so have
// those after them that are not smaller.
func (r *Reading) shrinks(err error) bool {
	large, is := errors.AsType[interface {
		error
		IsTooLarge() bool
	}](err)
	if !is || !large.IsTooLarge() || r.limit <= 1 {
		return false
	}
	r.limit = max(r.limit/step, 1)
	if !errors.As(err, new(*tooLargeError)) {
		r.most = r.limit
	}
	return true
}
