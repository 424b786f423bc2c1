package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
)

// toError returns the driver's error for one of the SDK. The SDK's own texts are not part of it:
// they have whole answers.
func toError(ctx context.Context, op driver.Op, now time.Time, err error) *driver.Error {
	if typed, ok := errors.AsType[*driver.Error](err); ok {
		return typed
	}
	if spent, ok := errors.AsType[*budgetError](err); ok {
		failure := driver.Throttledf(op, spent.wait, "%w", spent)
		failure.Pending = true // it was not sent
		return failure
	}
	if answer, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return answerError(op, now, answer.RawResponse)
	}
	if denied, ok := errors.AsType[*azidentity.AuthenticationFailedError](err); ok && denied.RawResponse != nil {
		return tokenError(op, now, denied.RawResponse)
	}
	if ctx.Err() == nil {
		_, isElsewhere := errors.AsType[*hostError](err)
		_, isSent := errors.AsType[*transportError](err)
		_, isToken := errors.AsType[*azidentity.AuthenticationFailedError](err)
		switch {
		case isElsewhere:
			return driver.Errorf(op, driver.Unknown, "the cloud's answer is not used, so the effect of the request is not known: %w", silence(err))
		case !isSent && !isToken:
			return driver.Errorf(op, driver.Unknown, "the cloud's answer cannot be read, so the effect of the request is not known")
		}
	}
	return httpclient.ErrorOf(ctx, op, silence(err))
}

// silence returns the cause of a request without an answer, without what the SDK adds to it.
func silence(err error) error {
	if sent, ok := errors.AsType[*transportError](err); ok {
		return sent.err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return errors.New("no token was obtained")
}

// tokenError returns the error of an answer of Entra ID to a request for a token. Its description
// has times and IDs of requests, and the codes of its beginning are enough to look it up.
func tokenError(op driver.Op, now time.Time, resp *http.Response) *driver.Error {
	var body struct {
		Error  string  `json:"error"`
		Number []int64 `json:"error_codes"`
	}
	code := driver.Unauthenticated
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError {
		code = driver.Unavailable
	}
	var failure *driver.Error
	if raw, err := runtime.Payload(resp); err != nil || json.Unmarshal(raw, &body) != nil || body.Error == "" {
		failure = driver.Errorf(op, code, "a request for a token was answered by %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	} else {
		failure = driver.Errorf(op, code, "Entra ID issues no token: %s (AADSTS%s); check tenant, client and its secret",
			body.Error, strings.Trim(fmt.Sprint(body.Number), "[]"))
	}
	failure.RetryAfter, failure.Throttled = httpclient.RetryAfter(resp.Header, now), resp.StatusCode == http.StatusTooManyRequests
	return failure
}

// codeNoGroup is the error code of a request about something in a resource group that does not
// exist. It is not the absence of a VM, which may be in the group that the class has named before.
const codeNoGroup = "ResourceGroupNotFound"

// refusedError is the cloud's answer to a request that it refuses.
type refusedError struct{ code, message string }

// Error returns the cloud's code and its message.
func (r *refusedError) Error() string { return r.code + ": " + r.message }

// answerError returns the error of an answer that is no success.
func answerError(op driver.Op, now time.Time, resp *http.Response) *driver.Error {
	var body struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	raw, err := runtime.Payload(resp)
	if err != nil || json.Unmarshal(raw, &body) != nil || body.Error.Code == "" {
		return driver.Errorf(op, httpclient.CodeOf(resp.StatusCode), "a server that is not the cloud answered %d %s",
			resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	failure := driver.Errorf(op, codeOf(resp.StatusCode, body.Error.Code, body.Error.Message),
		"%w", &refusedError{body.Error.Code, body.Error.Message})
	failure.RetryAfter, failure.Throttled = httpclient.RetryAfter(resp.Header, now), resp.StatusCode == http.StatusTooManyRequests
	return failure
}

var (
	exceedsQuota = regexp.MustCompile(`(?i)exceed(s|ed|ing).*quota|quota.*exceed`)
	unsupported  = regexp.MustCompile(`(?i)not\s+supported`)
)

// codeOf translates the cloud's answers. Its codes decide, and for others the status.
func codeOf(status int, code, message string) driver.Code {
	switch {
	case status == http.StatusTooManyRequests:
		return driver.Unavailable
	case isExhausted(code, message):
		return driver.ResourceExhausted
	}
	switch code {
	case "ResourceNotFound", "NotFound":
		return driver.NotFound
	case codeNoGroup, "SubscriptionNotFound", "InvalidSubscriptionId", "ParentResourceNotFound", "InvalidResourceReference", "ImageNotFound",
		"PlatformImageNotFound", "GalleryImageNotFound", "NoRegisteredProviderFound", "VMMarketplaceInvalidInput",
		"MarketplacePurchaseEligibilityFailed", "ResourcePurchaseValidationFailed":
		return driver.InvalidArgument
	case "MissingSubscriptionRegistration":
		return driver.FailedPrecondition
	case "ScopeLocked", "ReadOnlyDisabledSubscription", "RequestDisallowedByPolicy":
		return driver.PermissionDenied
	case "NicReservedForAnotherVm", "NicInUse", "ReferencedResourceNotProvisioned", "RetryableError", "AnotherOperationInProgress",
		"OperationPreempted", "AttachDiskWhileBeingDetached":
		return driver.Aborted // it passes with the end of another operation
	}
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return driver.InvalidArgument
	case http.StatusConflict, http.StatusPreconditionFailed:
		return driver.Aborted
	case http.StatusInternalServerError:
		return driver.Internal
	}
	return httpclient.CodeOf(status)
}

// isExhausted reports whether the cloud lacks quota or capacity. The last two conditions are those
// of Machine Controller Manager's provider: with these codes the cloud also refuses sizes that a
// zone or a region does not have.
func isExhausted(code, message string) bool {
	switch code {
	case "AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest", "OverconstrainedZonalAllocationRequest",
		"SkuNotAvailable", "NotAvailableForSubscription", "QuotaExceeded", "ResourceQuotaExceeded", "SubnetIsFull",
		"NetworkInterfaceCountLimitReached":
		return true
	case "OperationNotAllowed":
		return exceedsQuota.MatchString(message)
	case "BadRequest":
		return unsupported.MatchString(message)
	}
	return false
}
