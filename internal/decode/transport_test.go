package decode_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// server counts what its client reads.
type server struct {
	*apiserver.Server

	read, requests int
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.Server.RoundTrip(r)
	if err == nil {
		s.requests++
		answer.Body = &counted{answer.Body, &s.read}
	}
	return answer, err
}

type counted struct {
	io.ReadCloser

	read *int
}

func (c *counted) Read(into []byte) (int, error) {
	n, err := c.ReadCloser.Read(into)
	*c.read += n
	return n, err
}

// What is read and in memory at a time is bounded in bytes, regardless of the sizes and the order
// of the objects; all are read, once each.
func TestPagesAreBoundedInBytes(t *testing.T) {
	const large = 400 << 10
	for name, tc := range map[string]struct {
		sizes        []int
		mostRequests int
		mostRead     int // in addition to what the objects have
	}{
		"many small ones": {slices.Repeat([]int{100}, 1200), 3, 0},
		"large ones":      {slices.Repeat([]int{large}, 12), 20, 4 * decode.PageBytes},
		"large ones after small ones": {
			slices.Concat(slices.Repeat([]int{100}, 600), slices.Repeat([]int{large}, 12)), 20, 8 * decode.PageBytes,
		},
		"small ones after a large one":  {slices.Concat([]int{2 * decode.PageBytes}, slices.Repeat([]int{100}, 1200)), 12, 4 * decode.PageBytes},
		"one that is larger than pages": {[]int{3 * decode.PageBytes}, 5, 4 * decode.PageBytes},
		"none":                          {nil, 1, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{Server: apiserver.Recording()}
			var want []string
			content := 0
			for i, size := range tc.sizes {
				m := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
					Namespace: "n", Name: fmt.Sprintf("set-%04d", i), Annotations: map[string]string{"content": strings.Repeat("x", size)},
				}}
				apiserver.Add(s.Server, m)
				want, content = append(want, m.Name), content+size+1000
			}
			clients := apiserver.ClientsThrough(decode.PageTransport(s))
			var got []string
			err := decode.EachPage(t.Context(), "MachineSets", clients.Machines.MachineSets("n").List, func(page *v1alpha1.MachineSetList) {
				bytes := 0
				for i := range page.Items {
					got, bytes = append(got, page.Items[i].Name), bytes+len(page.Items[i].Annotations["content"])
				}
				if bytes > decode.PageBytes && len(page.Items) > 1 {
					t.Errorf("got a page of %d objects with %d bytes; want at most %d", len(page.Items), bytes, decode.PageBytes)
				}
			})
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("got %d objects, %v; want %d", len(got), err, len(want))
			}
			if s.requests > tc.mostRequests || s.read > content+tc.mostRead {
				t.Errorf("%d requests read %d bytes for objects of %d; want at most %d requests", s.requests, s.read, content, tc.mostRequests)
			}
		})
	}
}

// Only pages are measured: other requests, and refusals, arrive as they are.
func TestTransportPassesOtherAnswersUnchanged(t *testing.T) {
	s := apiserver.Recording()
	clients := apiserver.ClientsThrough(decode.PageTransport(s))
	if _, err := clients.Machines.MachineSets("n").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	s.Fault(func(apiserver.Request) error { return context.DeadlineExceeded })
	err := decode.EachPage(t.Context(), "MachineSets", clients.Machines.MachineSets("n").List, func(*v1alpha1.MachineSetList) {})
	if err == nil {
		t.Error("a list that was not answered was read")
	}
}
