package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Forbidden returns an error that names what replicas have asked of the lab in a folder and may not do, each once: their
// access rules and their code do not agree. It reads the audit logs, also those of a lab that has ended.
//
// The API server's own verdict counts, not the status 403: admission answers with that, too, for example to an Event in a
// namespace that is being deleted.
func Forbidden(dir string) error {
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
			}
			if err := json.Unmarshal(line, &entry); err != nil {
				return err
			}
			if entry.Stage != "ResponseComplete" || !strings.HasPrefix(entry.User.Username, "fleet-") ||
				entry.Annotations["authorization.k8s.io/decision"] != "forbid" {
				return nil
			}
			ref := entry.ObjectRef
			what := strings.Trim(fmt.Sprintf("%s %s.%s/%s", entry.Verb, ref.Resource, ref.APIGroup, ref.Subresource), "./")
			if key := log + what + ref.Namespace; !seen[key] {
				seen[key] = true
				forbidden = append(forbidden, fmt.Errorf("%s: %s may not %s: %s", log, entry.User.Username, what, entry.RequestURI))
			}
			return nil
		})
		if err != nil {
			forbidden = append(forbidden, err)
		}
	}
	return errors.Join(forbidden...)
}
