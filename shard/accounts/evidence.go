package accounts

import "github.com/machine-controller-fleet/machine-controller-fleet/driver"

// Evidence is what a call of a driver shows about the way to the cloud.
type Evidence int

// What a call shows.
const (
	// Nothing: it was not made, or a driver may return its error without a request.
	Nothing Evidence = iota
	// Unanswered: neither the cloud nor the driver has given a usable answer.
	Unanswered
	// Refused: the cloud has answered, and refuses the account.
	Refused
	// Works: the cloud has done, or found out, what it was asked.
	Works
)

// EvidenceOf returns what the outcome of a call shows. Drivers of Machine Controller Manager return Internal or Unknown for a lost
// connection; where these are answers, they are the same for all replicas.
func EvidenceOf(err error) Evidence {
	code := driver.CodeOf(err)
	switch code {
	case driver.OK, driver.NotFound, driver.AlreadyExists, driver.OutOfRange, driver.ResourceExhausted, driver.Uninitialized:
		return Works
	case driver.Unauthenticated, driver.PermissionDenied:
		return Refused
	case driver.Unavailable, driver.DeadlineExceeded, driver.Internal, driver.Unknown:
		if driver.RetryAfterOf(err) > 0 { // only a cloud requests a wait
			return Refused
		}
		return Unanswered
	case driver.InvalidArgument, driver.FailedPrecondition, driver.Unimplemented, driver.Aborted, driver.Canceled, driver.DataLoss:
		return Nothing
	}
	return Nothing
}
