package decode

import (
	"context"
	"errors"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEach(t *testing.T) {
	refused := errors.New("no")
	for name, tc := range map[string]struct {
		fail string // the page of this name cannot be read
		want []string
	}{
		"all pages":            {want: []string{"first", "second", "third"}},
		"the first one fails":  {fail: "first"},
		"the last one fails":   {fail: "third", want: []string{"first", "second"}},
		"one in between fails": {fail: "second", want: []string{"first"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			err := EachPage(t.Context(), "Machines", func(_ context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
				page := map[string]string{"": "first", "first": "second", "second": "third"}[options.Continue]
				if options.Limit != PageSize || page == "" {
					t.Errorf("got a request with the options %v", options)
				}
				if page == tc.fail {
					return nil, refused
				}
				list := &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: page}}}}
				if page != "third" {
					list.Continue = page
				}
				return list, nil
			}, func(page *metav1.PartialObjectMetadataList) { got = append(got, page.Items[0].Name) })
			if !slices.Equal(got, tc.want) || errors.Is(err, refused) != (tc.fail != "") {
				t.Errorf("visited %v, %v; want %v", got, err, tc.want)
			}
		})
	}
}
