package machineset

import (
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
)

// parallel is the maximum number of concurrent requests for one set.
const parallel = 32

// slowStart calls f for the items in batches of 1, 2, 4, 8, …, and begins no batch after a failure:
// what is rejected for one machine is mostly rejected for all, and a hundred rejections contain no
// more information than the first.
func slowStart[T any](items []T, f func(T) error) error {
	for size := 1; len(items) > 0; size *= 2 {
		batch := items[:min(size, len(items))]
		items = items[len(batch):]
		err := each(batch, f)
		switch {
		case err == nil:
		case len(items) > 0:
			return fmt.Errorf("%w (%d more were not tried)", err, len(items))
		default:
			return err
		}
	}
	return nil
}

// each calls f for all items, at most parallel at a time, and returns the first error, with the
// number of the others: they mostly have the same cause.
func each[T any](items []T, f func(T) error) error {
	errs := make([]error, len(items))
	var running sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i, item := range items {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			defer func() {
				if p := recover(); p != nil { // the runner recovers panics of one goroutine only
					errs[i] = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
				}
			}()
			errs[i] = f(item)
		})
	}
	running.Wait()
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch len(failed) {
	case 0:
		return nil
	case 1:
		return failed[0]
	}
	return fmt.Errorf("%w (and %d more like it)", failed[0], len(failed)-1)
}
