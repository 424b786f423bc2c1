package lifecycle

import "github.com/machine-controller-fleet/machine-controller-fleet/driver"

// ClassProblem returns what keeps machines of the World's class from getting a VM; "" if nothing is
// known that does. It does not consider the machine configuration, which differs between machines,
// and not that a driver is away.
func ClassProblem(w World) string {
	w.Config.Read, w.Config.Problem = true, ""
	switch v, wrong := checkInputs(w); {
	case wrong && v.Machine != nil:
		return v.Machine.Status.LastOperation.Description
	case wrong:
		return "" // something was not read
	case w.Failure != nil && w.Failure.Code == driver.InvalidArgument:
		return cloudMessage(w.Failure.Code, w.Failure.Message)
	case w.Failure != nil || !w.Class.Fields.Read:
		return ""
	}
	if v, wrong := checkFields(w); wrong {
		return v.Machine.Status.LastOperation.Description
	}
	return ""
}
