package accounts

import "github.com/machine-controller-fleet/machine-controller-fleet/driver"

// Evidence states what a call of a driver shows about the way to the cloud.
type Evidence int

// What a call shows.
const (
	// Nothing: it was not sent, or a driver may return its error without a request.
	Nothing Evidence = iota
	// Unanswered: neither the cloud nor the driver has given a usable answer.
	Unanswered
	// Refused: the cloud has answered, and refuses the account.
	Refused
	// Works: the cloud has done, or found out, what it was asked.
	Works
)

// EvidenceOf returns what the outcome of a call shows. A cloud that throttles has answered, unless
// the driver has not sent the request. Unavailable is no answer also where it requests a wait: a
// proxy of this replica can. Drivers of Machine Controller Manager return Internal or Unknown for a
// lost connection; where these are answers, they are the same for all replicas.
func EvidenceOf(err error) Evidence {
	if driver.IsThrottled(err) {
		if driver.IsPending(err) {
			return Nothing
		}
		return Refused
	}
	switch driver.CodeOf(err) {
	case driver.OK, driver.NotFound, driver.AlreadyExists, driver.OutOfRange, driver.ResourceExhausted, driver.Uninitialized:
		return Works
	case driver.Unauthenticated, driver.PermissionDenied:
		return Refused
	case driver.Unavailable, driver.DeadlineExceeded, driver.Internal, driver.Unknown:
		return Unanswered
	case driver.InvalidArgument, driver.FailedPrecondition, driver.Unimplemented, driver.Aborted, driver.Canceled, driver.DataLoss:
		return Nothing
	}
	return Nothing
}
