package hack

import (
	"path/filepath"
	"strings"
	"testing"
)

// vulnerable calls url.Parse, which has a vulnerability in the database of the test.
const vulnerable = "package main\n\nimport \"net/url\"\n\nfunc main() { _, _ = url.Parse(\"a\") }\n"

// knownVulnerability is an entry of the database, in OSV's format.
const knownVulnerability = `{"id": "GO-2026-0001", "modified": "2026-01-01T00:00:00Z", "summary": "a test",
  "affected": [{"package": {"name": "stdlib", "ecosystem": "Go"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}],
    "ecosystem_specific": {"imports": [{"path": "net/url", "symbols": ["Parse"]}]}}],
  "database_specific": {"url": "https://example.com"}}`

// TestVulnerabilitiesAreReportedSkippedOrFail: an unreachable database is never a pass.
func TestVulnerabilitiesAreReportedSkippedOrFail(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles govulncheck")
	}
	dir := scratch(t, "hack/vuln.sh", "hack/env.sh", "hack/tools/govulncheck/go.mod", "hack/tools/govulncheck/go.sum")
	write(t, filepath.Join(dir, "calls", "main.go"), vulnerable)
	database := func(modules string) string {
		db := t.TempDir()
		write(t, filepath.Join(db, "index", "db.json"), `{"modified": "2026-01-01T00:00:00Z"}`)
		write(t, filepath.Join(db, "index", "modules.json"), modules)
		write(t, filepath.Join(db, "ID", "GO-2026-0001.json"), knownVulnerability)
		return "file://" + db
	}
	const nowhere = "http://127.0.0.1:1"
	for _, tc := range []struct {
		db, args string
		code     int
		message  string
	}{
		{nowhere, "--if-reachable", 77, "vulnerabilities were not checked: " + nowhere + " does not answer: "},
		{nowhere, "", 1, "expected the database at " + nowhere},
		{database(`[]`), "", 0, "No vulnerabilities found"},
		{
			database(`[{"path": "stdlib", "vulns": [{"id": "GO-2026-0001", "modified": "2026-01-01T00:00:00Z"}]}]`), "--if-reachable", 3,
			"GO-2026-0001",
		},
		{nowhere, "--sometimes", 2, "expected --if-reachable or no argument"},
	} {
		output, code := run(t, dir, "VULNDB="+tc.db+" bash hack/vuln.sh "+tc.args)
		if code != tc.code || !strings.Contains(output, tc.message) {
			t.Errorf("%q with %s: want exit code %d and %q, got %d and:\n%s", tc.args, tc.db, tc.code, tc.message, code, output)
		}
	}
}
