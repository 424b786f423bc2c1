package buildinfo

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Unknown is the value of what was not recorded when the binary was built.
const Unknown = "unknown"

// The linker sets them: -ldflags "-X <this package>.version=v1.2.3". See VERSION, COMMIT and DATE
// in the Makefile.
//
//nolint:gochecknoglobals // the linker can set nothing else
var version, commit, date string

// Info describes a build. No field is empty.
type Info struct {
	// Version is a semantic version, or Go's pseudo-version of a commit.
	Version string
	// Commit is the full hash, with the suffix -dirty when the checkout had changes.
	Commit string
	// Date is that of the commit (RFC 3339), so that the same sources result in the same binary.
	Date string
	// Go is the version of Go, such as go1.26.8.
	Go string
}

// Read returns the build of this binary.
func Read() Info {
	recorded, _ := debug.ReadBuildInfo() // nil when there is none
	return describe(Info{Version: version, Commit: commit, Date: date, Go: runtime.Version()}, recorded)
}

// String returns one line for each field.
func (i Info) String() string {
	return fmt.Sprintf("version: %s\ncommit:  %s\ndate:    %s\ngo:      %s", i.Version, i.Commit, i.Date, i.Go)
}

// describe fills the empty fields of the linker's values with those that Go has recorded; recorded
// may be nil.
func describe(linked Info, recorded *debug.BuildInfo) Info {
	var module, revision, time, dirty string
	if recorded != nil {
		module = recorded.Main.Version
		for _, setting := range recorded.Settings {
			switch setting.Key {
			case "vcs.revision":
				revision = setting.Value
			case "vcs.time":
				time = setting.Value
			case "vcs.modified":
				if setting.Value == "true" {
					dirty = "-dirty"
				}
			}
		}
	}
	if module == "(devel)" { // what Go records when the version is unknown
		module = ""
	}
	if revision != "" {
		revision += dirty
	}
	return Info{
		Version: cmp.Or(linked.Version, module, Unknown),
		Commit:  cmp.Or(linked.Commit, revision, Unknown),
		Date:    cmp.Or(linked.Date, time, Unknown),
		Go:      linked.Go,
	}
}
