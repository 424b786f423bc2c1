package zpages

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// checkTimeout is how long the checks of one request may take together.
const checkTimeout = time.Second

// Check is the result of a named check.
type Check struct {
	// Name has lower-case letters and dashes.
	Name string
	// Err is why the check has failed; nil if it has passed.
	Err error
}

// Report contains what a process reports about one aspect of its health.
type Report struct {
	Checks []Check
	// Notes are worth knowing and do not count.
	Notes []string
}

// RegisterHealth serves a report at a path, such as /readyz, and each check at the path below it.
// The status is 200 when all checks have passed, and 503 otherwise. With ?verbose, and when a check
// has failed, each check has a line, such as "[+]ping ok" or "[-]ping failed: …". A check that
// ?exclude= names does not count; it may be given several times. The context of report ends after a
// second.
func RegisterHealth(mux *http.ServeMux, path string, report func(context.Context) Report) {
	mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		serveReport(w, r, strings.TrimPrefix(path, "/"), limited(r, report))
	})
	mux.HandleFunc(path+"/{check}", func(w http.ResponseWriter, r *http.Request) {
		serveCheck(w, r.PathValue("check"), limited(r, report))
	})
}

func limited(r *http.Request, report func(context.Context) Report) Report {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	return report(ctx)
}

// serveReport answers with all checks.
func serveReport(w http.ResponseWriter, r *http.Request, name string, report Report) {
	excluded := r.URL.Query()["exclude"]
	var lines strings.Builder
	failed := false
	for _, check := range report.Checks {
		switch {
		case slices.Contains(excluded, check.Name):
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", check.Name)
		case check.Err != nil:
			failed = true
			fmt.Fprintf(&lines, "[-]%s failed: %s\n", check.Name, line(check.Err.Error()))
		default:
			fmt.Fprintf(&lines, "[+]%s ok\n", check.Name)
		}
	}
	for _, note := range report.Notes {
		fmt.Fprintf(&lines, "warn: %s\n", line(note))
	}
	for _, unknown := range excluded {
		if !slices.ContainsFunc(report.Checks, func(c Check) bool { return c.Name == unknown }) {
			fmt.Fprintf(&lines, "warn: no check to exclude has the name %q\n", unknown)
		}
	}
	_, verbose := r.URL.Query()["verbose"]
	switch {
	case failed:
		writeText(w, http.StatusServiceUnavailable, lines.String()+name+" check failed\n")
	case verbose:
		writeText(w, http.StatusOK, lines.String()+name+" check passed\n")
	default:
		writeText(w, http.StatusOK, "ok")
	}
}

// serveCheck answers with one check.
func serveCheck(w http.ResponseWriter, name string, report Report) {
	i := slices.IndexFunc(report.Checks, func(c Check) bool { return c.Name == name })
	switch {
	case i < 0:
		writeText(w, http.StatusNotFound, "there is no check of this name; ?verbose lists all\n")
	case report.Checks[i].Err != nil:
		writeText(w, http.StatusServiceUnavailable, line(report.Checks[i].Err.Error())+"\n")
	default:
		writeText(w, http.StatusOK, "ok")
	}
}
