package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestForbidden: requests that access rules forbid to replicas are found, and no similar ones.
func TestForbidden(t *testing.T) {
	const (
		allowed   = `{"stage":"ResponseComplete","verb":"get","requestURI":"/1","user":{"username":"fleet-0"},"objectRef":{"resource":"nodes"},"annotations":{"authorization.k8s.io/decision":"allow"}}`
		admission = `{"stage":"ResponseComplete","verb":"create","requestURI":"/2","user":{"username":"fleet-0"},"objectRef":{"resource":"events"},"responseStatus":{"code":403},"annotations":{"authorization.k8s.io/decision":"allow"}}`
		others    = `{"stage":"ResponseComplete","verb":"get","requestURI":"/3","user":{"username":"system:node:a"},"objectRef":{"resource":"pods"},"annotations":{"authorization.k8s.io/decision":"forbid"}}`
		refused   = `{"stage":"ResponseComplete","verb":"patch","requestURI":"/4","user":{"username":"fleet-1"},"objectRef":{"apiGroup":"coordination.k8s.io","resource":"leases","namespace":"a"},"annotations":{"authorization.k8s.io/decision":"forbid"}}`
		noObject  = `{"stage":"ResponseComplete","verb":"get","requestURI":"/metrics","user":{"username":"fleet-0"},"annotations":{"authorization.k8s.io/decision":"forbid"}}`
		policy    = `{"stage":"ResponseComplete","verb":"patch","requestURI":"/5","user":{"username":"fleet-1"},"objectRef":{"resource":"nodes","name":"m"},"annotations":{"authorization.k8s.io/decision":"allow","validation.policy.admission.k8s.io/validation_failure":"[{\"message\":\"of a Node's spec\"}]"}}`
	)
	for _, test := range []struct {
		name         string
		audit        []string
		target, want []string
	}{
		{name: "in order", audit: []string{allowed, admission, others}},
		{name: "by a policy", audit: []string{policy}, want: []string{"fleet-1 may not patch nodes"}},
		{name: "each once", audit: []string{refused, allowed, refused}, want: []string{"fleet-1 may not patch leases.coordination.k8s.io"}},
		{name: "both clusters", audit: []string{noObject}, target: []string{refused}, want: []string{"/metrics", "fleet-1 may not patch leases"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "audit.log"), test.audit)
			if test.target != nil {
				write(t, filepath.Join(dir, "target-audit.log"), test.target)
			}
			var got []string
			if err := Forbidden(dir); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if len(got) != len(test.want) {
				t.Fatalf("want %d errors, got %q", len(test.want), got)
			}
			for i, want := range test.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("error %d: want %q in it, got %q", i, want, got[i])
				}
			}
		})
	}
}

// TestExpectedRefusals: only requests that a policy rejects with the expected text are ignored.
func TestExpectedRefusals(t *testing.T) {
	const (
		policy = `{"stage":"ResponseComplete","verb":"patch","requestURI":"/5","user":{"username":"fleet-1"},"objectRef":{"resource":"nodes"},"annotations":{"authorization.k8s.io/decision":"allow","validation.policy.admission.k8s.io/validation_failure":"[{\"message\":\"of a Node's spec\"}]"}}`
		rule   = `{"stage":"ResponseComplete","verb":"patch","requestURI":"/6","user":{"username":"fleet-1"},"objectRef":{"resource":"pods"},"annotations":{"authorization.k8s.io/decision":"forbid"}}`
	)
	for name, tc := range map[string]struct {
		audit, expected string
		want            bool
	}{
		"expected":     {policy, "Node's spec", false},
		"not expected": {policy, "Node's labels", true},
		"nothing is":   {policy, "", true},
		"by RBAC":      {rule, "Node's spec", true},
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "audit.log"), []string{tc.audit})
		if err := forbiddenBut(dir, tc.expected, nil); (err != nil) != tc.want {
			t.Errorf("%s: %v, want an error: %t", name, err, tc.want)
		}
	}
}

// TestForbiddenDuringAnOutage: only requests during the outage are ignored.
func TestForbiddenDuringAnOutage(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	entry := func(verb string, after time.Duration) string {
		return fmt.Sprintf(
			`{"stage":"ResponseComplete","verb":%q,"requestReceivedTimestamp":%q,"user":{"username":"fleet-0"},"objectRef":{"resource":"nodes"},"annotations":{"authorization.k8s.io/decision":"forbid"}}`,
			verb, start.Add(after).Format(time.RFC3339Nano),
		)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "audit.log"), []string{
		entry("list", -time.Millisecond), entry("get", time.Second), entry("watch", 2*time.Second+time.Millisecond),
	})
	err := Forbidden(dir,
		Outage{From: start.Add(-time.Hour), To: start.Add(-time.Minute)}, Outage{From: start, To: start.Add(2 * time.Second)})
	if err == nil || !strings.Contains(err.Error(), "list nodes") || !strings.Contains(err.Error(), "watch nodes") ||
		strings.Contains(err.Error(), "get nodes") {
		t.Errorf("want the list and the watch, got %v", err)
	}
}

// TestForbiddenWithoutAnAuditLogIsAnError: a missing audit log is an error.
func TestForbiddenWithoutAnAuditLogIsAnError(t *testing.T) {
	if err := Forbidden(t.TempDir()); err == nil {
		t.Error("want an error for a folder without an audit log, got none")
	}
}

func write(t *testing.T, file string, lines []string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}
