package zpages

import (
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
)

// Row is a line of a page.
type Row struct{ Name, Value string }

// Flagz returns the page of the flags of a component, in the order of the rows.
func Flagz(component string, flags []Row) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusOK, heading(component, "flagz")+lines(flags, "="))
	})
}

// Status contains what /statusz reports about a process.
type Status struct {
	Component string
	Started   time.Time
	Now       func() time.Time
	// GoVersion and Version are those of the binary.
	GoVersion, Version string
	// Paths are those that the process serves.
	Paths []string
	// More returns further rows for a request.
	More func(*http.Request) []Row
}

// Statusz returns the page of a status.
func Statusz(s Status) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rows := append([]Row{
			{"Started", s.Started.UTC().Format(time.UnixDate)},
			{"Up", uptime(s.Now().Sub(s.Started))},
			{"Go version", s.GoVersion},
			{"Binary version", s.Version},
			{"Paths", strings.Join(s.Paths, " ")},
		}, s.More(r)...)
		writeText(w, http.StatusOK, heading(s.Component, "statusz")+lines(rows, ": "))
	})
}

func heading(component, page string) string {
	return component + " " + page + "\nWarning: this page is for people; its format may change in any version.\n\n"
}

func uptime(d time.Duration) string {
	seconds := int64(max(d, 0).Seconds())
	return fmt.Sprintf("%d hr %02d min %02d sec", seconds/3600, seconds/60%60, seconds%60)
}

// lines returns a line for each row.
func lines(rows []Row, separator string) string {
	var text strings.Builder
	for _, row := range rows {
		text.WriteString(row.Name + separator + line(row.Value) + "\n")
	}
	return text.String()
}

// line returns a text as one line of printable characters.
func line(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(status)
	fmt.Fprint(w, text)
}
