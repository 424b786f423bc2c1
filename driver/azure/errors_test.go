package azure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
)

// answer is an answer of the cloud.
func answer(status int, header map[string]string, body string) *http.Response {
	resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader([]byte(body)))}
	for key, text := range header {
		resp.Header.Set(key, text)
	}
	return resp
}

func refusal(code, message string) string {
	raw, _ := json.Marshal(map[string]any{"error": map[string]string{"code": code, "message": message}}) // it can be encoded
	return string(raw)
}

func TestErrorMap(t *testing.T) {
	for name, c := range map[string]struct {
		status        int
		code, message string
		want          driver.Code
	}{
		"no VM":                   {404, "ResourceNotFound", "", driver.NotFound},
		"no resource group":       {404, "ResourceGroupNotFound", "", driver.InvalidArgument},
		"no subscription":         {404, "SubscriptionNotFound", "", driver.InvalidArgument},
		"no network":              {404, "ParentResourceNotFound", "", driver.InvalidArgument},
		"no image":                {404, "PlatformImageNotFound", "", driver.InvalidArgument},
		"an unknown 404":          {404, "Gone", "", driver.Unknown},
		"no capacity":             {409, "AllocationFailed", "", driver.ResourceExhausted},
		"no capacity in the zone": {409, "ZonalAllocationFailed", "", driver.ResourceExhausted},
		"no such size":            {409, "SkuNotAvailable", "", driver.ResourceExhausted},
		"quota": {
			409, "OperationNotAllowed", "Operation results in exceeding approved Total Regional Cores quota.", driver.ResourceExhausted,
		},
		"resource quota":            {409, "ResourceQuotaExceeded", "", driver.ResourceExhausted},
		"no address":                {400, "SubnetIsFull", "", driver.ResourceExhausted},
		"size not supported":        {400, "BadRequest", "The size is not  supported in zone 2.", driver.ResourceExhausted},
		"another conflict":          {409, "OperationNotAllowed", "The VM is being changed.", driver.Aborted},
		"invalid":                   {400, "InvalidParameter", "", driver.InvalidArgument},
		"no subnet":                 {400, "InvalidResourceReference", "", driver.InvalidArgument},
		"reserved":                  {400, "NicReservedForAnotherVm", "", driver.Aborted},
		"used":                      {400, "NicInUse", "", driver.Aborted},
		"conflict":                  {409, "Conflict", "", driver.Aborted},
		"exists":                    {412, "PreconditionFailed", "", driver.Aborted},
		"not authenticated":         {401, "InvalidAuthenticationToken", "", driver.Unauthenticated},
		"not authorized":            {403, "AuthorizationFailed", "", driver.PermissionDenied},
		"locked":                    {409, "ScopeLocked", "", driver.PermissionDenied},
		"policy":                    {403, "RequestDisallowedByPolicy", "", driver.PermissionDenied},
		"not registered":            {409, "MissingSubscriptionRegistration", "", driver.FailedPrecondition},
		"throttled":                 {429, "SubscriptionRequestsThrottled", "", driver.Unavailable},
		"throttled by the provider": {429, "OperationNotAllowed", "exceeding the quota of requests", driver.Unavailable},
		"internal":                  {500, "InternalServerError", "", driver.Internal},
		"unavailable":               {503, "ServerTimeout", "", driver.Unavailable},
		"timeout":                   {504, "GatewayTimeout", "", driver.DeadlineExceeded},
	} {
		err := answerError(driver.OpCreate, time.Time{}, answer(c.status, nil, refusal(c.code, c.message))) //nolint:bodyclose // it is in memory
		if err.Code != c.want || err.Throttled != (c.status == http.StatusTooManyRequests) || !strings.Contains(err.Error(), c.code) {
			t.Errorf("%s: %v, throttled %t; want %v with the cloud's code, and what it is", name, err, err.Throttled, c.want)
		}
	}
}

// What is not the cloud's answer proves nothing, and is not shown.
func TestAnswersOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		want   driver.Code
	}{
		"404 of a proxy": {404, "<html>s3cret", driver.Unknown}, "403": {403, "s3cret", driver.PermissionDenied},
		"407": {407, "", driver.Unauthenticated}, "502": {502, "", driver.Unavailable}, "500": {500, "null", driver.Unknown},
		"an error without a code": {404, `{"error": "s3cret"}`, driver.Unknown},
	} {
		err := answerError(driver.OpStatus, time.Time{}, answer(c.status, nil, c.body)) //nolint:bodyclose // it is in memory
		if err.Code != c.want || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"17": 17 * time.Second, "": 0, "-3": 0, "soon": 0, "99999": driver.MaxRetryAfter,
		now.Add(time.Minute).Format(http.TimeFormat): time.Minute, now.Add(-time.Minute).Format(http.TimeFormat): 0,
	} {
		//nolint:bodyclose // it is in memory
		err := answerError(driver.OpStatus, now, answer(429, map[string]string{"Retry-After": text}, refusal("TooManyRequests", "")))
		if err.RetryAfter != want {
			t.Errorf("%q: %v, want %v", text, err.RetryAfter, want)
		}
	}
}

func TestErrorsWithoutAnAnswer(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithTimeout(t.Context(), 0)
	defer cancelLate()
	for name, c := range map[string]struct {
		ctx  context.Context //nolint:containedctx // it is what is tested
		err  error
		want driver.Code
	}{
		"no connection":       {t.Context(), &transportError{errors.New("refused")}, driver.Unavailable},
		"its context ended":   {ended, &transportError{context.Canceled}, driver.Canceled},
		"its deadline passed": {late, &transportError{context.DeadlineExceeded}, driver.DeadlineExceeded},
		"a wait that ended":   {ended, context.Canceled, driver.Canceled},
		"too large":           {t.Context(), &transportError{&httpclient.LimitError{What: "bytes", Limit: 1}}, driver.Unknown},
		"redirected":          {t.Context(), &transportError{&httpclient.RedirectError{Status: 307}}, driver.Unknown},
		"another server":      {t.Context(), &transportError{&hostError{}}, driver.Unknown},
		"not decoded":         {t.Context(), errors.New("unmarshalling s3cret"), driver.Unknown},
		"budget":              {t.Context(), &budgetError{writes, 3 * time.Second}, driver.Unavailable},
		"the driver's own":    {t.Context(), fmt.Errorf("x: %w", driver.Errorf(driver.OpCreate, driver.Aborted, "y")), driver.Aborted},
		//nolint:bodyclose // it is in memory
		"an answer": {t.Context(), runtime.NewResponseError(answer(404, nil, refusal("ResourceNotFound", "x"))), driver.NotFound},
	} {
		err := toError(c.ctx, driver.OpCreate, time.Time{}, c.err)
		if err.Code != c.want || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err.Pending != (name == "budget") {
			t.Errorf("%s: pending is %v: only what was not sent is pending", name, err.Pending)
		}
		if name == "budget" && err.RetryAfter != 3*time.Second {
			t.Errorf("budget: retry after %v, want 3s", err.RetryAfter)
		}
	}
}

func TestErrorsOfTokens(t *testing.T) {
	for body, c := range map[string]struct {
		status int
		want   driver.Code
		text   string
	}{
		`{"error": "invalid_client", "error_description": "AADSTS7000215: s3cret", "error_codes": [7000215]}`: {
			401, driver.Unauthenticated, "AADSTS7000215",
		},
		`{"error": "temporarily_unavailable", "error_codes": [90033]}`: {503, driver.Unavailable, "AADSTS90033"},
		`<html>s3cret`: {400, driver.Unauthenticated, "400"},
	} {
		err := tokenError(driver.OpCreate, time.Time{}, answer(c.status, nil, body)) //nolint:bodyclose // it is in memory
		if err.Code != c.want || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %v with %s", body, err, c.want, c.text)
		}
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add(404, "", []byte(refusal("ResourceNotFound", "x")))
	f.Add(429, "3", []byte(refusal("TooManyRequests", "x")))
	f.Add(503, "Fri, 02 Jan 2026 03:04:05 GMT", []byte(`<html>`))
	f.Fuzz(func(t *testing.T, status int, after string, body []byte) {
		//nolint:bodyclose // it is in memory
		err := answerError(driver.OpStatus, time.Time{}, answer(status, map[string]string{"Retry-After": after}, string(body)))
		if err.Code == driver.OK || err.RetryAfter < 0 || err.RetryAfter > driver.MaxRetryAfter {
			t.Errorf("%d %q %q: %v, retry after %v", status, after, body, err, err.RetryAfter)
		}
		if err.Code == driver.NotFound && !strings.Contains(string(body), "NotFound") && !strings.Contains(string(body), `\u`) {
			t.Errorf("%d %q: NotFound, which the cloud did not answer", status, body)
		}
	})
}
