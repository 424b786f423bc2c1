package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Request is one request to an API server, as its audit log has it.
type Request struct {
	// At is when it was answered, by the API server's clock; of one of Watches, when that began.
	At time.Time
	// Took is the time from its receipt to that answer.
	Took        time.Duration
	User        string
	Verb        string
	Group       string
	Resource    string
	Subresource string
	Namespace   string
	Name        string
	UserAgent   string
	// URI has the selectors of a list or watch, and names a dry run.
	URI  string
	Code int
	// Cluster is the prefix of the API server's processes, "" for the control cluster.
	Cluster string
	// Body is that of a patch of a Node; others are not logged.
	Body json.RawMessage

	id string // of its entries in the audit log
}

// IsWrite reports whether the request could have changed something. Reviews, of tokens and of
// access, are created and not stored.
func (r Request) IsWrite() bool {
	if strings.HasSuffix(r.Resource, "reviews") {
		return false
	}
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return !strings.Contains(r.URI, "dryRun=")
	}
	return false
}

// IsFleet reports whether a replica of the fleet has sent the request, except for Events and
// Leases.
func (r Request) IsFleet() bool {
	return isReplica(r.User) && r.Resource != "events" && r.Resource != "leases"
}

// serviceAccount is the user of the replicas that the chart installs, as its documentation does.
const serviceAccount = "system:serviceaccount:" + FleetNamespace + ":" + FleetName

// isReplica reports whether a user is a replica of the fleet, of the lab or in a pod.
func isReplica(user string) bool { return strings.HasPrefix(user, "fleet-") || user == serviceAccount }

// IsToken reports whether the request was about a bootstrap token.
func (r Request) IsToken() bool { return r.Resource == "secrets" && r.Namespace == "kube-system" }

// AuditPosition is a moment in the audit logs.
type AuditPosition map[string]int64

// auditLogs names the logs of all the lab's API servers.
func (l *Lab) auditLogs() []string {
	logs := []string{filepath.Join(l.Dir, auditLog)}
	targets, _ := filepath.Glob(filepath.Join(l.Dir, "*-"+auditLog)) // the pattern is valid
	return append(logs, targets...)
}

// auditLog is the audit log of the control cluster, and the end of the names of others.
const auditLog = "audit.log"

// AuditEnd returns the current end of the audit logs.
func (l *Lab) AuditEnd() (AuditPosition, error) {
	position := AuditPosition{}
	for _, log := range l.auditLogs() {
		info, err := os.Stat(log)
		if err != nil {
			return nil, fmt.Errorf("audit log: %w", err)
		}
		position[log] = info.Size()
	}
	return position, nil
}

// The stages of a request that the audit logs have.
const (
	started  = "ResponseStarted" // of long-running requests: watches
	complete = "ResponseComplete"
)

// Requests returns the requests since the position, of all API servers, that have been answered
// completely.
func (l *Lab) Requests(since AuditPosition) ([]Request, error) { return l.audited(since, complete) }

// Watches returns the watches that were begun since the position, at all API servers, also those
// that are still open.
func (l *Lab) Watches(since AuditPosition) ([]Request, error) { return l.audited(since, started) }

// OpenWatches returns the watches that were begun since the position, and that have not ended.
func (l *Lab) OpenWatches(since AuditPosition) ([]Request, error) {
	watches, err := l.Watches(since)
	if err != nil {
		return nil, err
	}
	answered, err := l.Requests(since)
	ended := map[string]bool{}
	for _, r := range answered {
		ended[r.id] = true
	}
	return slices.DeleteFunc(watches, func(r Request) bool { return ended[r.id] }), err
}

func (l *Lab) audited(since AuditPosition, stage string) ([]Request, error) {
	var requests []Request
	for _, log := range l.auditLogs() {
		err := eachLine(log, since[log], func(line []byte) error {
			var entry struct {
				Stage     string
				AuditID   string
				CameIn    time.Time `json:"requestReceivedTimestamp"`
				At        time.Time `json:"stageTimestamp"`
				Verb      string
				UserAgent string
				URI       string `json:"requestURI"`
				User      struct{ Username string }
				ObjectRef *struct{ APIGroup, Resource, Subresource, Namespace, Name string }
				Response  struct{ Code int } `json:"responseStatus"`
				Body      json.RawMessage    `json:"requestObject"`
			}
			if err := json.Unmarshal(line, &entry); err != nil {
				return err
			}
			if entry.Stage != stage || entry.ObjectRef == nil {
				return nil
			}
			ref := entry.ObjectRef
			requests = append(requests, Request{
				Cluster: strings.TrimSuffix(strings.TrimSuffix(filepath.Base(log), auditLog), "-"),
				id:      entry.AuditID, At: entry.At, Took: entry.At.Sub(entry.CameIn), User: entry.User.Username, Verb: entry.Verb,
				UserAgent: entry.UserAgent, URI: entry.URI, Code: entry.Response.Code, Group: ref.APIGroup, Resource: ref.Resource,
				Subresource: ref.Subresource, Namespace: ref.Namespace, Name: ref.Name, Body: entry.Body,
			})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return requests, nil
}
