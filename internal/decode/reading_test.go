package decode

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An API server may send pages without end.
func TestListWithoutEndIsAnError(t *testing.T) {
	for name, tc := range map[string]struct {
		items, bytes, pages int
		want                string
	}{
		"no objects": {0, 1, mostEmpty + 1, "more than 10 pages without objects"},
		"objects":    {1, 1, mostPages, "more than 10000 pages"},
		"junk":       {1, 1 << 20, 33, "more than 32 MiB of answers"},
	} {
		t.Run(name, func(t *testing.T) {
			requests, visited := 0, 0
			err := EachPage(AtMost(t.Context(), 32<<20), "Nodes",
				func(ctx context.Context, _ metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
					requests++
					meterOf(ctx).got = tc.bytes
					return &metav1.PartialObjectMetadataList{
						ListMeta: metav1.ListMeta{Continue: "x"}, Items: make([]metav1.PartialObjectMetadata, tc.items),
					}, nil
				}, func(*metav1.PartialObjectMetadataList) { visited++ })
			if !errors.As(err, new(*EndlessError)) || !strings.Contains(err.Error(), tc.want) || requests != tc.pages || visited != tc.pages-1 {
				t.Errorf("got %v after %d requests, want %s after %d", err, requests, tc.want, tc.pages)
			}
		})
	}
}

// Pages without objects come from an API server that has selected none of a part of its objects.
func TestListWithSomeEmptyPagesIsRead(t *testing.T) {
	pages := 0
	err := EachPage(t.Context(), "Nodes", func(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
		if pages++; pages > mostEmpty {
			return &metav1.PartialObjectMetadataList{}, nil
		}
		return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{Continue: "x"}}, nil
	}, func(*metav1.PartialObjectMetadataList) {})
	if err != nil {
		t.Error(err)
	}
}

type tooManyError struct{ error }

func (tooManyError) IsTooLarge() bool { return true }

// What the connection refuses is requested again with fewer objects, and pages do not grow beyond
// that; a single object that it refuses is an error.
func TestPagesThatTheConnectionRefusesShrink(t *testing.T) {
	for most, want := range map[int64][]int64{40: {500, 125, 31, 31, 31}, 0: {500, 125, 31, 7, 1}} {
		var limits []int64
		err := EachPage(t.Context(), "Nodes", func(_ context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
			limits = append(limits, options.Limit)
			if options.Limit > most {
				return nil, tooManyError{errors.New("too many values")}
			}
			list := &metav1.PartialObjectMetadataList{Items: make([]metav1.PartialObjectMetadata, 1)}
			if len(limits) < len(want) {
				list.Continue = "x"
			}
			return list, nil
		}, func(*metav1.PartialObjectMetadataList) {})
		if !slices.Equal(limits, want) || (err == nil) != (most > 0) {
			t.Errorf("at most %d: requested %d objects, %v; want %d", most, limits, err, want)
		}
	}
}
