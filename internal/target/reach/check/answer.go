package check

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// IsAnswer reports whether the result of a read proves that the server and its storage answer.
// NotFound does, and so does Forbidden: a missing right is no outage. 401, 429 and 5xx do not: then
// nothing can be read from the server, regardless of the cause.
func IsAnswer(err error) bool {
	if err == nil {
		return true
	}
	var status apierrors.APIStatus
	return errors.As(err, &status) && !isOutage(int(status.Status().Code))
}

// isOutage reports whether an HTTP status is no answer.
func isOutage(code int) bool {
	return code == 0 || code == http.StatusUnauthorized || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout ||
		code >= http.StatusInternalServerError
}
