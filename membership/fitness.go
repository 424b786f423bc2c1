package membership

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"
)

// Fitness reports what a session can do beyond renewing its Lease. Others compare it, but not its
// time.
type Fitness struct {
	// Acts: the session has read all Leases of the fleet, and its fence has not passed.
	Acts bool `json:"acts"`
	// Observes: the session observes its own renewals through its watch of the fleet's Leases.
	Observes bool `json:"observes"`
	// Serves is whether the slots that the session acquires open, by the name of the target cluster. A
	// target that is missing is Untried; nil means that the session does not report it, and counts as
	// Serving.
	Serves map[string]Service `json:"serves,omitempty"`
	// Reason describes what is wrong; empty if the session is fit.
	Reason string `json:"reason,omitempty"`
	// Since is when the session became unfit, by its own clock, for operators; zero if the session is
	// fit.
	Since time.Time `json:"since,omitzero"`
}

// Service is the result of a session's attempts to serve a target cluster.
type Service string

// The services.
const (
	// Untried: no slot has opened yet, and none has failed to.
	Untried Service = "untried"
	// Serving: slots open.
	Serving Service = "serving"
	// Failing: a slot did not open in time, or a watch of its objects is broken.
	Failing Service = "failing"
)

// IsFit reports whether the session acts and observes, and fails to serve no target cluster.
func (f Fitness) IsFit() bool {
	if !f.Acts || !f.Observes {
		return false
	}
	for _, service := range f.Serves {
		if service == Failing {
			return false
		}
	}
	return true
}

// ServiceOf returns what the session reports of a target cluster.
func (f Fitness) ServiceOf(target string) Service {
	service, known := f.Serves[target]
	switch {
	case known:
		return service
	case f.Serves == nil:
		return Serving
	}
	return Untried
}

// IsSame reports whether two reports state the same abilities.
func (f Fitness) IsSame(other Fitness) bool {
	return f.Acts == other.Acts && f.Observes == other.Observes && f.Reason == other.Reason && maps.Equal(f.Serves, other.Serves)
}

// String returns the value of the annotation on the session Lease.
func (f Fitness) String() string {
	text, err := json.Marshal(f)
	if err != nil {
		return "" // impossible: the fields are booleans, strings and a time of this process
	}
	return string(text)
}

// ParseFitness parses the annotation of a session Lease. Without the annotation the session runs a
// version that does not report its fitness, and counts as fit. Errors: an invalid value; the
// session then counts as unfit.
func ParseFitness(text string) (Fitness, error) {
	if text == "" {
		return Fitness{Acts: true, Observes: true}, nil
	}
	var f Fitness
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return Fitness{Reason: "its report is not valid"},
			fmt.Errorf("fitness: expected JSON with acts, observes and serves, got %q: %w", text, err)
	}
	return f, nil
}
