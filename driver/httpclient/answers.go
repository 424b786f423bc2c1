package httpclient

import (
	"net/http"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// CodeOf returns the code for the status of an answer that is not known otherwise: its error code is not, or it did not come from the cloud, but
// from a proxy, for example. Such an answer proves nothing about VMs: a 404 is not the absence of one.
func CodeOf(status int) driver.Code {
	switch status {
	case http.StatusUnauthorized, http.StatusProxyAuthRequired:
		return driver.Unauthenticated
	case http.StatusForbidden:
		return driver.PermissionDenied
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable:
		return driver.Unavailable
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return driver.DeadlineExceeded
	}
	return driver.Unknown
}

// CheckPage returns an error for a page of a list with more items than was requested, and for one that follows itself. token is that of the page,
// and next that of the page after it.
func CheckPage(op driver.Op, items, size int, token, next string) error {
	switch {
	case items > size:
		return driver.Errorf(op, driver.Internal, "the cloud listed %d resources on one page; expected at most %d", items, size)
	case next != "" && next == token:
		return driver.Errorf(op, driver.Internal, "the cloud's list does not end: page %q follows itself", next)
	}
	return nil
}
