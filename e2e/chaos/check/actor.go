package check

import (
	"regexp"
	"strconv"
)

// Actor is the session that sent a request, by its User-Agent.
type Actor struct {
	Replica, Session string
	// Slot and Epoch of the ownership that the request was sent under; Slot is -1 where there was
	// none.
	Slot, Epoch int
	// Leader reports whether the request was sent under the leadership.
	Leader bool
}

var userAgent = regexp.MustCompile(`^machine-controller-fleet/(\S+) \(session=([^;)]+)(?:; slot=(\d+); epoch=(\d+)|(; leader))?\)`)

// ParseActor reads a User-Agent; false means that it is not one of a replica.
func ParseActor(text string) (Actor, bool) {
	found := userAgent.FindStringSubmatch(text)
	if found == nil {
		return Actor{}, false
	}
	actor := Actor{Replica: found[1], Session: found[2], Slot: -1, Leader: found[5] != ""}
	if found[3] == "" {
		return actor, true
	}
	var errs [2]error
	actor.Slot, errs[0] = strconv.Atoi(found[3])
	actor.Epoch, errs[1] = strconv.Atoi(found[4])
	return actor, errs[0] == nil && errs[1] == nil
}
