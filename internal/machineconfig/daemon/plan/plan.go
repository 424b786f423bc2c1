package plan

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// directoryMode is that of created folders whose mode no config requests.
	directoryMode = 0o755
	// maxPath and maxName are Linux's limits for a path and for a name in it. A name gets a suffix
	// while it is written.
	maxPath, maxName = 4096 - 64, 255
)

// Entry is one path of the desired tree.
type Entry struct {
	Want State
	// Field names the field of the config that requests it, for messages.
	Field string
	// Unit and Keys are those of Managed.
	Unit string
	Keys bool
	// KeepsExisting refuses the path if something is there that no config has put there (overwrite:
	// false).
	KeepsExisting bool
}

// Observed contains what was found on the machine.
type Observed struct {
	// Paths has the state of all paths of the desired tree and of the record.
	Paths map[string]State
	// Folders has what is at each folder above these paths: Absent, Folder, Link or Other. The root is
	// no part of it.
	Folders map[string]Kind
}

// World is the input of Compute.
type World struct {
	Managed map[string]Managed
	Desired map[string]Entry
	// Directories are the folders whose mode and owner differ from the default (0755, Owner), by path.
	Directories map[string]Directory
	// UID and GID own created folders.
	UID, GID int
	Observed Observed
	// Reserved are folders that no config may change, among them the daemon's own.
	Reserved []string
	// IsProvisioned means that the machine was installed with the configuration: what is as it
	// requests was not there before.
	IsProvisioned bool
}

// Step is the change of one path.
type Step struct {
	Path   string `json:"path"`
	Before State  `json:"before"`
	After  State  `json:"after"`
	Unit   string `json:"unit,omitempty"`
	Keys   bool   `json:"keys,omitempty"`
}

// Refusal is a part of a config that cannot be applied in place.
type Refusal struct {
	// Field is the field of the config, such as storage.disks, or a path.
	Field string
	// Message has what was found and what to do.
	Message string
}

// Plan is a set of changes that are applied together.
type Plan struct {
	// Directories are created, parents first.
	Directories []Directory
	// Steps are sorted by path. One per path that differs.
	Steps []Step
	// Managed is the record after the changes.
	Managed map[string]Managed
	// Refused forbids all changes when it is not empty.
	Refused []Refusal
}

// Compute returns the plan that turns the observed tree into the desired one.
func Compute(w World) Plan {
	p := Plan{Managed: map[string]Managed{}}
	missing := map[string]bool{}
	for _, name := range sortedKeys(w.Desired) {
		entry := w.Desired[name]
		found := w.state(name)
		original := found
		before, isManaged := w.Managed[name]
		switch {
		case isManaged:
			original = before.Original
		case w.IsProvisioned && found == entry.Want:
			original = State{Kind: Absent}
		}
		if why := w.refuse(name, entry, found, isManaged); why != "" {
			p.Refused = append(p.Refused, Refusal{Field: entry.Field, Message: why})
			continue
		}
		p.Managed[name] = Managed{State: entry.Want, Original: original, Unit: entry.Unit, Keys: entry.Keys}
		p.step(Step{Path: name, Before: found, After: entry.Want, Unit: entry.Unit, Keys: entry.Keys})
		if entry.Want.Kind != Absent {
			w.missing(name, missing)
		}
	}
	for _, name := range sortedKeys(w.Managed) {
		if _, stays := w.Desired[name]; stays {
			continue
		}
		record := w.Managed[name]
		found := w.state(name)
		if why := w.blocked(name, found); why != "" {
			p.Refused = append(p.Refused, Refusal{Field: name, Message: why})
			continue
		}
		p.step(Step{Path: name, Before: found, After: record.Original, Unit: record.Unit, Keys: record.Keys})
		if record.Original.Kind != Absent {
			w.missing(name, missing)
		}
	}
	slices.SortFunc(p.Steps, func(a, b Step) int { return strings.Compare(a.Path, b.Path) })
	for _, folder := range sortedKeys(missing) {
		directory, ok := w.Directories[folder]
		if !ok {
			directory = Directory{Path: folder, Mode: directoryMode, UID: w.UID, GID: w.GID}
		}
		p.Directories = append(p.Directories, directory)
	}
	return p
}

// step adds a step if it changes something.
func (p *Plan) step(s Step) {
	if s.Before != s.After {
		p.Steps = append(p.Steps, s)
	}
}

func (w World) state(name string) State {
	if found, ok := w.Observed.Paths[name]; ok {
		return found
	}
	return State{Kind: Absent}
}

// missing adds the folders above a path that do not exist.
func (w World) missing(name string, to map[string]bool) {
	for folder := range folders(name) {
		if w.Observed.Folders[folder] == Absent {
			to[folder] = true
		}
	}
}

// refuse returns why a desired path cannot be applied; "" means that it can.
func (w World) refuse(name string, entry Entry, found State, isManaged bool) string {
	if why := CheckPath(name); why != "" {
		return why
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Sprintf("%q: expected printable characters: a line break would end the path in a list or a log", abbreviatedPath(name))
	}
	for _, reserved := range w.Reserved {
		if within(name, reserved) || within(reserved, name) {
			return fmt.Sprintf("%s: no config may change %s", name, reserved)
		}
	}
	if entry.Want.Mode&^0o777 != 0 {
		return fmt.Sprintf("%s: expected a mode of at most 0777, got %04o", name, entry.Want.Mode)
	}
	for folder := range folders(name) {
		if other, ok := w.Desired[folder]; ok && other.Want.Kind != Absent {
			return fmt.Sprintf("%s: the config has a %s at %s, which has to be a folder", name, other.Want.Kind, folder)
		}
	}
	if why := w.blocked(name, found); why != "" {
		return why
	}
	if entry.KeepsExisting && !isManaged && found.Kind != Absent && found != entry.Want {
		return fmt.Sprintf("%s: the machine has another %s there, and overwrite is false; remove it or set overwrite", name, found.Kind)
	}
	return ""
}

// blocked returns why a path cannot be written on this machine; "" means that it can.
func (w World) blocked(name string, found State) string {
	for folder := range folders(name) {
		switch kind := w.Observed.Folders[folder]; kind { //nolint:exhaustive // the others are refused
		case Folder, Absent:
		case Link:
			return fmt.Sprintf("%s: %s is a symbolic link, and links are not followed; write the path that it leads to", name, folder)
		default:
			return fmt.Sprintf("%s: expected a folder at %s, found %s", name, folder, orOther(kind))
		}
	}
	if found.Kind == Folder || found.Kind == Other {
		return fmt.Sprintf("%s: expected a file, a link or nothing, found %s; remove it first", name, found.Kind)
	}
	return ""
}

// orOther returns the kind; that of a folder that was not observed is Other.
func orOther(k Kind) Kind {
	if k == "" {
		return Other
	}
	return k
}

// CheckPath returns why a text is no path that can be written; "" means that it is one.
func CheckPath(name string) string {
	switch {
	case !path.IsAbs(name) || path.Clean(name) != name || name == "/":
		return fmt.Sprintf("%q: expected an absolute path without .., repeated slashes and a final slash", abbreviatedPath(name))
	case strings.ContainsRune(name, 0):
		return fmt.Sprintf("%q: a path cannot contain a zero byte", abbreviatedPath(name))
	case len(name) > maxPath || slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return len(part) > maxName }):
		return fmt.Sprintf("%q…: the path or a name in it is too long", abbreviatedPath(name))
	}
	return ""
}

func abbreviatedPath(name string) string { return name[:min(len(name), 200)] }

// folders yields the folders above a path, from the top, without the root.
func folders(name string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := 1; i < len(name); i++ {
			if name[i] == '/' && !yield(name[:i]) {
				return
			}
		}
	}
}

// Folders returns the folders above paths, each once, parents first, without the root.
func Folders(paths []string) []string {
	all := map[string]bool{}
	for _, name := range paths {
		for folder := range folders(name) {
			all[folder] = true
		}
	}
	return sortedKeys(all)
}

// within reports whether a path is a folder or below it.
func within(name, folder string) bool {
	return name == folder || strings.HasPrefix(name, strings.TrimSuffix(folder, "/")+"/")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
