package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// stopNextOn stops the next request or driver call of a replica, whose name contains the text,
// between its check and its send. The name of a request is its method and path, that of a driver
// call its operation and the machine; the ownership follows. Tests use StopNext: which replica
// sends a request is not known before it is sent.
func (l *Lab) stopNextOn(ctx context.Context, process, match string) error {
	order, err := json.Marshal(map[string]string{"match": match})
	if err != nil {
		return fmt.Errorf("encode the order: %w", err)
	}
	return Eventually(ctx, process+" takes the order", func(ctx context.Context) error { // it may be about to start
		return send(ctx, http.MethodPost, l.faultPointURL(process), bytes.NewReader(order), nil)
	})
}

// Stopped names what a replica has stopped, in that order: requests and driver calls, each with the
// ownership that it is sent under, and answers to them.
func (l *Lab) Stopped(ctx context.Context, process string) ([]string, error) {
	var state struct{ Held []string }
	err := send(ctx, http.MethodGet, l.faultPointURL(process), nil, &state)
	return state.Held, err
}

// Resume resumes the first request or call that a replica has stopped. With answer, its answer is
// stopped then.
func (l *Lab) Resume(ctx context.Context, process string, answer bool) error {
	order, err := json.Marshal(map[string]bool{"answer": answer})
	if err != nil {
		return fmt.Errorf("encode the order: %w", err)
	}
	return send(ctx, http.MethodPut, l.faultPointURL(process), bytes.NewReader(order), nil)
}

// Release resumes all that a replica has stopped, and ends its fault points.
func (l *Lab) Release(ctx context.Context, process string) error {
	return send(ctx, http.MethodDelete, l.faultPointURL(process), nil, nil)
}

func (l *Lab) faultPointURL(process string) string { return l.Endpoint(process) + "/debug/faultpoints" }
