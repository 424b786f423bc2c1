package simulated

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// Keys in the data of the Secret with the credentials. Both are optional.
const (
	// SecretEndpoint names one of Config.Endpoints; without it the first is used.
	SecretEndpoint = "endpoint"
	// SecretToken is the credential that the cloud requires.
	SecretToken = "token"
)

// call is one request to the cloud.
type call struct {
	op     driver.Op
	secret map[string][]byte
	method string
	path   string
	query  url.Values
	body   any               // nil for none
	limits httpclient.Limits // of the answer; zero for those of one thing
}

// do sends a request and decodes the answer into out.
func (d *Driver) do(ctx context.Context, c call, out any) error {
	ctx, cancel := httpclient.Bounded(ctx)
	defer cancel()
	req, err := d.request(ctx, c)
	if err != nil {
		return err
	}
	limits := c.limits
	if limits == (httpclient.Limits{}) {
		limits = httpclient.One()
	}
	var refused error // by the cloud, or by us when its answer cannot be read
	err = d.client.Do(req, limits, func(answer httpclient.Answer) error {
		if answer.Status != http.StatusOK {
			refused = answerError(c.op, answer.Status, answer.Header, answer.Body)
		} else if err := json.Unmarshal(answer.Body, out); err != nil {
			refused = driver.Errorf(c.op, driver.Unknown,
				"the cloud's answer cannot be read, so the effect of the request is not known: %s", whereInvalid(err))
		}
		return nil
	})
	if err != nil {
		return httpclient.ErrorOf(ctx, c.op, err)
	}
	return refused
}

// whereInvalid returns where JSON is not what is expected, without any of its content: it may come
// from a server that is not the cloud.
func whereInvalid(err error) string {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("it is no JSON, from byte %d on", syntax.Offset)
	}
	if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("the type of %q is not %s", mistyped.Field, mistyped.Type)
	}
	return "a value is not in the form that is expected"
}

// endpointOf returns the endpoint that a Secret names.
func (d *Driver) endpointOf(op driver.Op, secret map[string][]byte) (*url.URL, error) {
	endpoint, err := d.endpoints.Choose(string(bytes.TrimSpace(secret[SecretEndpoint])))
	if err != nil {
		return nil, driver.Errorf(op, driver.InvalidArgument, "secret key %q: %w", SecretEndpoint, err)
	}
	return endpoint, nil
}

// request returns the HTTP request of a call.
func (d *Driver) request(ctx context.Context, c call) (*http.Request, error) {
	endpoint, err := d.endpointOf(c.op, c.secret)
	if err != nil {
		return nil, err
	}
	var body io.Reader
	if c.body != nil {
		raw, err := json.Marshal(c.body)
		if err != nil {
			return nil, driver.Errorf(c.op, driver.Internal, "encode the request: %w", err)
		}
		body = bytes.NewReader(raw)
	}
	to := endpoint.JoinPath(c.path)
	to.RawQuery = c.query.Encode()
	req, err := http.NewRequestWithContext(ctx, c.method, to.String(), body)
	if err != nil {
		return nil, driver.Errorf(c.op, driver.InvalidArgument, "create the request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if d.userAgent != "" {
		req.Header.Set("User-Agent", d.userAgent)
	}
	if token := bytes.TrimSpace(c.secret[SecretToken]); len(token) > 0 {
		req.Header.Set("Authorization", "Bearer "+string(token))
	}
	return req, nil
}

// answerError returns the error of an answer that is no success.
func answerError(op driver.Op, status int, header http.Header, answer []byte) *driver.Error {
	var body cloudapi.ErrorBody
	if err := json.Unmarshal(answer, &body); err != nil || body.Code == "" {
		return driver.Errorf(op, httpclient.CodeOf(status), "a server that is not the cloud answered %d %s", status, http.StatusText(status))
	}
	failure := driver.Errorf(op, codeOf(body.Code), "%s: %s", body.Code, body.Message)
	failure.RetryAfter, failure.Throttled = retryAfter(header, body), body.Code == cloudapi.CodeThrottled
	return failure
}

// codeOf translates the cloud's error codes.
func codeOf(code cloudapi.ErrorCode) driver.Code {
	switch code {
	case cloudapi.CodeInvalidParameter:
		return driver.InvalidArgument
	case cloudapi.CodeUnauthorized:
		return driver.Unauthenticated
	case cloudapi.CodeForbidden:
		return driver.PermissionDenied
	case cloudapi.CodeNotFound:
		return driver.NotFound
	case cloudapi.CodePreconditionFailed:
		return driver.FailedPrecondition
	case cloudapi.CodeIdempotencyMismatch:
		return driver.AlreadyExists
	case cloudapi.CodeConflict:
		return driver.Aborted // The VM is in a transient state.
	case cloudapi.CodeQuotaExceeded, cloudapi.CodeNoCapacity:
		return driver.ResourceExhausted
	case cloudapi.CodeThrottled, cloudapi.CodeUnavailable:
		return driver.Unavailable
	case cloudapi.CodeInternal:
		return driver.Internal
	}
	return driver.Unknown
}

// retryAfter returns the wait that the cloud requests. The body is more precise than the header,
// which has whole seconds.
func retryAfter(header http.Header, body cloudapi.ErrorBody) time.Duration {
	seconds := body.RetryAfterSeconds
	if seconds <= 0 {
		whole, err := time.ParseDuration(header.Get("Retry-After") + "s")
		if err != nil || whole < 0 {
			return 0
		}
		return min(whole, driver.MaxRetryAfter)
	}
	return time.Duration(min(seconds, driver.MaxRetryAfter.Seconds()) * float64(time.Second))
}
