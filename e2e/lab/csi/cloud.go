package csi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// cloud makes calls to the cloud.
type cloud struct {
	url, credentials, agent string
	client                  *http.Client
}

func newCloud(cfg Config, agent string) cloud {
	return cloud{url: cfg.Cloud, credentials: cfg.Credentials, agent: agent, client: cfg.HTTPClient}
}

// refusal is an error of the cloud: the call had no effect.
type refusal struct{ cloudapi.ErrorBody }

func (r *refusal) Error() string { return fmt.Sprintf("the cloud answered %s: %s", r.Code, r.Message) }

// isCode reports whether the cloud rejected a call with that code.
func isCode(err error, code cloudapi.ErrorCode) bool {
	r, ok := errors.AsType[*refusal](err)
	return ok && r.Code == code
}

// call makes a call. The answer is decoded into out, unless that is nil.
func (c cloud) call(ctx context.Context, method, path string, in, out any) error {
	raw, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode the call: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("make the call: %w", err)
	}
	req.Header.Set("User-Agent", c.agent)
	if c.credentials != "" {
		req.Header.Set("Authorization", "Bearer "+c.credentials)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return fmt.Errorf("call the cloud: %w", err)
	}
	defer resp.Body.Close()
	answer := json.NewDecoder(resp.Body)
	if resp.StatusCode != http.StatusOK {
		var refused refusal
		if err := answer.Decode(&refused.ErrorBody); err != nil {
			return fmt.Errorf("the cloud answered %s", resp.Status)
		}
		return &refused
	}
	if out == nil {
		return nil
	}
	if err := answer.Decode(out); err != nil {
		return fmt.Errorf("read the cloud's answer: %w", err)
	}
	return nil
}

func attachmentPath(volume string) string { return withID(cloudapi.PathVolumeAttachment, volume) }

func withID(path, id string) string { return strings.Replace(path, "{id}", url.PathEscape(id), 1) }
