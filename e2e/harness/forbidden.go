package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Outage is a time during which an API server was unavailable, or had just restarted.
type Outage struct{ From, To time.Time }

// Has reports whether a moment is within the outage.
func (o Outage) Has(at time.Time) bool { return !at.Before(o.From) && !at.After(o.To) }

// policyFailure is the annotation in the audit log of a request that an admission policy has
// rejected.
const policyFailure = "validation.policy.admission.k8s.io/validation_failure"

// Forbidden returns an error that names each kind of request of replicas that was forbidden in the
// lab of a folder: their access rules or admission policies do not match their code. It reads the
// audit logs, also those of a lab that has ended.
//
// The decision of the API server's authorizer counts, and that of the policies of the chart, not
// the status 403: admission answers with that, too, for example to an Event in a namespace that is
// being deleted. Requests during an outage are ignored: until a restarted server has loaded its
// rules, it forbids everything.
func Forbidden(dir string, outages ...Outage) error { return forbiddenBut(dir, "", outages) }

// forbiddenBut is Forbidden without requests that an admission policy has rejected with an expected
// text; "" for none.
func forbiddenBut(dir, expected string, outages []Outage) error {
	seen := map[string]bool{}
	var forbidden []error
	for _, log := range (&Lab{Dir: dir}).auditLogs() {
		err := eachLine(log, 0, func(line []byte) error {
			var entry struct {
				Stage       string
				Verb        string
				RequestURI  string
				User        struct{ Username string }
				ObjectRef   struct{ APIGroup, Resource, Subresource, Namespace string } // empty for requests without an object
				Annotations map[string]string
				At          time.Time `json:"requestReceivedTimestamp"`
			}
			if err := json.Unmarshal(line, &entry); err != nil {
				return err
			}
			if entry.Stage != "ResponseComplete" || !isReplica(entry.User.Username) ||
				entry.Annotations["authorization.k8s.io/decision"] != "forbid" && entry.Annotations[policyFailure] == "" ||
				expected != "" && strings.Contains(entry.Annotations[policyFailure], expected) ||
				slices.ContainsFunc(outages, func(o Outage) bool { return o.Has(entry.At) }) {
				return nil
			}
			ref := entry.ObjectRef
			what := strings.Trim(fmt.Sprintf("%s %s.%s/%s", entry.Verb, ref.Resource, ref.APIGroup, ref.Subresource), "./")
			if key := log + what + ref.Namespace; !seen[key] {
				seen[key] = true
				forbidden = append(forbidden,
					fmt.Errorf("%s: %s may not %s: %s %s", log, entry.User.Username, what, entry.RequestURI, entry.Annotations[policyFailure]))
			}
			return nil
		})
		if err != nil {
			forbidden = append(forbidden, err)
		}
	}
	return errors.Join(forbidden...)
}
