package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Hold has the next request or driver call of a replica, whose name contains the text, stop between its check and its
// send, and waits until one has. The name of a request is its method and path, that of a driver call its operation and
// the machine.
func (l *Lab) Hold(ctx context.Context, process, match string) (what string, err error) {
	order, err := json.Marshal(map[string]string{"match": match})
	if err != nil {
		return "", fmt.Errorf("encode the order: %w", err)
	}
	if err := Eventually(ctx, process+" takes the order", func(ctx context.Context) error { // it may be about to start
		return send(ctx, http.MethodPost, l.holdURL(process), bytes.NewReader(order), nil)
	}); err != nil {
		return "", err
	}
	err = Eventually(ctx, "a request is held", func(ctx context.Context) error {
		var state struct{ Held []string }
		if err := send(ctx, http.MethodGet, l.holdURL(process), nil, &state); err != nil {
			return err
		}
		if len(state.Held) == 0 {
			return errors.New("nothing is")
		}
		what = state.Held[0]
		return nil
	})
	return what, err
}

// Release lets go on what a replica holds.
func (l *Lab) Release(ctx context.Context, process string) error {
	return send(ctx, http.MethodDelete, l.holdURL(process), nil, nil)
}

func (l *Lab) holdURL(process string) string { return l.Endpoint(process) + "/debug/hold" }
