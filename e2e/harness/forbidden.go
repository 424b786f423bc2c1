package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Outage is a time during which an API server was away, or had only just come back.
type Outage struct{ From, To time.Time }

// Has says that a moment is within the outage.
func (o Outage) Has(at time.Time) bool { return !at.Before(o.From) && !at.After(o.To) }

// policyFailure is the annotation in the audit log of a request that an admission policy has refused.
const policyFailure = "validation.policy.admission.k8s.io/validation_failure"

// Forbidden returns an error that names what replicas have asked of the lab in a folder and may not do, each once: their
// access rules or admission policies and their code do not agree. It reads the audit logs, also those of a lab that has ended.
//
// The API server's own verdict counts, and that of the policies of the chart, not the status 403: admission answers with that, too, for example to an Event in a
// namespace that is being deleted. What was asked during an outage is passed over: until a server that has come back knows
// its rules again, it forbids everything.
func Forbidden(dir string, outages ...Outage) error { return forbiddenBut(dir, "", outages) }

// forbiddenBut is Forbidden without what an admission policy has refused with words that are expected; "" for none.
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
				ObjectRef   struct{ APIGroup, Resource, Subresource, Namespace string } // empty for what is no object
				Annotations map[string]string
				At          time.Time `json:"requestReceivedTimestamp"`
			}
			if err := json.Unmarshal(line, &entry); err != nil {
				return err
			}
			if entry.Stage != "ResponseComplete" || !strings.HasPrefix(entry.User.Username, "fleet-") ||
				entry.Annotations["authorization.k8s.io/decision"] != "forbid" && entry.Annotations[policyFailure] == "" ||
				expected != "" && strings.Contains(entry.Annotations[policyFailure], expected) ||
				slices.ContainsFunc(outages, func(o Outage) bool { return o.Has(entry.At) }) {
				return nil
			}
			ref := entry.ObjectRef
			what := strings.Trim(fmt.Sprintf("%s %s.%s/%s", entry.Verb, ref.Resource, ref.APIGroup, ref.Subresource), "./")
			if key := log + what + ref.Namespace; !seen[key] {
				seen[key] = true
				forbidden = append(forbidden, fmt.Errorf("%s: %s may not %s: %s %s", log, entry.User.Username, what, entry.RequestURI, entry.Annotations[policyFailure]))
			}
			return nil
		})
		if err != nil {
			forbidden = append(forbidden, err)
		}
	}
	return errors.Join(forbidden...)
}
