package cloudsim

import (
	"fmt"
	"net/http"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// refusal is an answer that is not 2xx.
type refusal struct {
	code       cloudapi.ErrorCode
	message    string
	retryAfter time.Duration
}

// Error returns the code and the message.
func (r *refusal) Error() string { return fmt.Sprintf("%s: %s", r.code, r.message) }

func refuse(code cloudapi.ErrorCode, format string, args ...any) *refusal {
	return &refusal{code: code, message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) *refusal {
	return refuse(cloudapi.CodeInvalidParameter, format, args...)
}

// status is the HTTP status of an error code.
func status(code cloudapi.ErrorCode) int {
	switch code {
	case cloudapi.CodeInvalidParameter:
		return http.StatusBadRequest
	case cloudapi.CodeUnauthorized:
		return http.StatusUnauthorized
	case cloudapi.CodeForbidden, cloudapi.CodeQuotaExceeded:
		return http.StatusForbidden
	case cloudapi.CodeNotFound:
		return http.StatusNotFound
	case cloudapi.CodeConflict, cloudapi.CodeIdempotencyMismatch:
		return http.StatusConflict
	case cloudapi.CodePreconditionFailed:
		return http.StatusPreconditionFailed
	case cloudapi.CodeThrottled:
		return http.StatusTooManyRequests
	case cloudapi.CodeNoCapacity, cloudapi.CodeUnavailable:
		return http.StatusServiceUnavailable
	case cloudapi.CodeInternal:
	}
	return http.StatusInternalServerError
}
