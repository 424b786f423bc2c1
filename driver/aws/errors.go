package aws

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
)

// Error codes of EC2 on which the driver decides.
const (
	codeTokenEnded     = "IdempotentInstanceTerminated"
	codeTokenMismatch  = "IdempotentParameterMismatch" //nolint:gosec // no credential
	codeVMNotFound     = "InvalidInstanceID.NotFound"
	codeVMMalformed    = "InvalidInstanceID.Malformed"
	codeNICNotFound    = "InvalidNetworkInterfaceID.NotFound"
	codeVolumeNotFound = "InvalidVolume.NotFound"
)

// failed returns the error of a request. A client whose credentials are rejected is not used again:
// the next call reads them anew.
func (a *account) failed(ctx context.Context, op driver.Op, err error) *driver.Error {
	failure := errorOf(ctx, op, a.driver.clock.Now(), err)
	if failure.Code == driver.Unauthenticated {
		a.driver.accounts.Remove(a.key)
	}
	return failure
}

// errorOf translates an error of the SDK.
func errorOf(ctx context.Context, op driver.Op, now time.Time, err error) *driver.Error {
	if strange, ok := errors.AsType[*strangeError](err); ok {
		return driver.Errorf(op, httpclient.CodeOf(strange.status),
			"the cloud's answer is not used, so the effect of the request is not known: %w", strange)
	}
	if token, ok := errors.AsType[*tokenError](err); ok {
		return driver.Errorf(op, driver.Unauthenticated, "%w", token)
	}
	if refusal, ok := errors.AsType[smithy.APIError](err); ok {
		return refusalOf(op, now, refusal, err)
	}
	if _, ok := errors.AsType[*smithy.DeserializationError](err); ok {
		return driver.Errorf(op, driver.Unknown,
			"the cloud's answer cannot be read, so the effect of the request is not known: a value is not in the form that is expected")
	}
	if cause, ok := errors.AsType[*url.Error](err); ok {
		err = cause // without the SDK's own words
	}
	return httpclient.ErrorOf(ctx, op, err)
}

// refusalOf returns the error of a request that the cloud has refused.
func refusalOf(op driver.Op, now time.Time, refusal smithy.APIError, err error) *driver.Error {
	status, header := 0, http.Header{}
	if resp, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && resp.Response != nil && resp.Response.Response != nil {
		status, header = resp.Response.StatusCode, resp.Response.Header
	}
	// What follows is encoded, up to 10 KiB long, and of use only with a call of the cloud that
	// decodes it.
	message, _, _ := strings.Cut(refusal.ErrorMessage(), " Encoded authorization failure message")
	failure := driver.Errorf(op, codeOf(refusal.ErrorCode(), status), "%s: %s", refusal.ErrorCode(), message)
	failure.RetryAfter, failure.Throttled = httpclient.RetryAfter(header, now), isThrottled(refusal.ErrorCode())
	return failure
}

// codeIs reports whether the cloud has refused a request with one of these error codes.
func codeIs(err error, codes ...string) bool {
	refusal, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return false
	}
	for _, code := range codes {
		if refusal.ErrorCode() == code {
			return true
		}
	}
	return false
}

// codeOf translates the cloud's error codes.
func codeOf(code string, status int) driver.Code {
	if isThrottled(code) {
		return driver.Unavailable
	}
	switch code {
	case "InsufficientAddressCapacity", "InsufficientCapacity", "InsufficientCapacityOnHost", "InsufficientFreeAddressesInSubnet",
		"InsufficientHostCapacity", "InsufficientInstanceCapacity", "InsufficientReservedInstanceCapacity", "InsufficientVolumeCapacity",
		"InstanceLimitExceeded", "VcpuLimitExceeded", "VolumeLimitExceeded", "MaxIOPSLimitExceeded", "RouteLimitExceeded", "AddressLimitExceeded",
		"NetworkInterfaceLimitExceeded", "PrivateIpAddressLimitExceeded", "ResourceCountLimitExceeded", "MaxSpotInstanceCountExceeded",
		"SpotMaxPriceTooLow", "ReservationCapacityExceeded", "UnfulfillableCapacity", "Unsupported":
		return driver.ResourceExhausted
	case codeTokenEnded, "ConcurrentTagAccess", "IncorrectInstanceState", "IncorrectState", "InvalidNetworkInterface.InUse", "VolumeInUse",
		"InvalidIPAddress.InUse", "DependencyViolation":
		return driver.Aborted
	case codeTokenMismatch:
		return driver.AlreadyExists
	case codeVMNotFound, codeNICNotFound, codeVolumeNotFound:
		return driver.NotFound
	case "AuthFailure", "ExpiredToken", "ExpiredTokenException", "IDPRejectedClaim", "IncompleteSignature",
		"InvalidClientTokenId", "InvalidIdentityToken",
		"MissingAuthenticationToken", "RequestExpired", "SignatureDoesNotMatch", "UnrecognizedClientException":
		return driver.Unauthenticated
	case "AccessDenied", "AccessDeniedException", "Blocked", "OptInRequired", "UnauthorizedOperation":
		return driver.PermissionDenied
	case "OperationNotPermitted", "PendingVerification", "UnsupportedOperation":
		return driver.FailedPrecondition
	case "IDPCommunicationError", "ServiceUnavailable", "Unavailable":
		return driver.Unavailable
	case "InternalError", "InternalFailure", "InternalServerError":
		return driver.Internal
	case "MissingParameter", "UnknownParameter", "ValidationError":
		return driver.InvalidArgument
	}
	if strings.HasPrefix(code, "Invalid") || strings.HasPrefix(code, "Malformed") || strings.HasPrefix(code, "Missing") {
		return driver.InvalidArgument
	}
	if status == http.StatusInternalServerError {
		return driver.Internal
	}
	return httpclient.CodeOf(status)
}

// isThrottled reports whether an error code means that there were too many requests.
func isThrottled(code string) bool {
	switch code {
	case "BandwidthLimitExceeded", "EC2ThrottledException", "RequestLimitExceeded", "RequestThrottled",
		"RequestThrottledException", "SlowDown",
		"Throttling", "ThrottlingException", "TooManyRequestsException":
		return true
	}
	return false
}
