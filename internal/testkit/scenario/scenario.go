package scenario

import (
	"fmt"
	"os"
	"strings"
)

const (
	heading = "scenario:"
	arrow   = "=>"
)

// Fact is one line of what is given: "key: value", or the key alone.
type Fact struct {
	Key, Value string
	// Line in its file.
	Line int
}

// Scenario is one test case.
type Scenario struct {
	Name string
	// Given are the facts of the file, and then its own, in the order of the file.
	Given []Fact
	// Want is the verdict in the file, lines without a newline at the end.
	Want string

	from, to int // lines of the verdict in the file
}

// File is a file of scenarios.
type File struct {
	Path      string
	Scenarios []Scenario

	lines []string
}

// Read reads a file. Errors: it cannot be read, or is not in the format that the package comment
// describes.
func Read(path string) (File, error) {
	content, err := os.ReadFile(path) //nolint:gosec // a file of the test that calls
	if err != nil {
		return File{}, fmt.Errorf("read scenarios: %w", err)
	}
	f := File{Path: path, lines: strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")}
	if err := f.parse(); err != nil {
		return File{}, err
	}
	return f, nil
}

func (f *File) parse() error {
	var common []Fact
	var now *Scenario // nil above the first one
	names := map[string]bool{}
	for i := 0; i < len(f.lines); i++ {
		line := strings.TrimSpace(f.lines[i])
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, heading):
			name := strings.TrimSpace(strings.TrimPrefix(line, heading))
			if name == "" || names[name] {
				return fmt.Errorf("%s:%d: expected a separate name for each scenario, got %q", f.Path, i+1, name)
			}
			if now != nil {
				return fmt.Errorf("%s:%d: expected %s and a verdict before the next scenario", f.Path, i+1, arrow)
			}
			names[name] = true
			now = &Scenario{Name: name, Given: append([]Fact(nil), common...)}
		case line == arrow:
			if now == nil {
				return fmt.Errorf("%s:%d: expected a scenario before %s", f.Path, i+1, arrow)
			}
			now.from = i + 1
			for i+1 < len(f.lines) && strings.TrimSpace(f.lines[i+1]) != "" {
				i++
			}
			now.to = i + 1
			now.Want = strings.Join(f.lines[now.from:now.to], "\n")
			f.Scenarios = append(f.Scenarios, *now)
			now = nil
		default:
			key, value, _ := strings.Cut(line, ":")
			fact := Fact{Key: strings.TrimSpace(key), Value: strings.TrimSpace(value), Line: i + 1}
			switch {
			case now != nil:
				now.Given = append(now.Given, fact)
			case len(f.Scenarios) > 0:
				return fmt.Errorf("%s:%d: expected a scenario, got %q", f.Path, i+1, line)
			default:
				common = append(common, fact)
			}
		}
	}
	if now != nil {
		return fmt.Errorf("%s: expected %s and a verdict at the end of scenario %q", f.Path, arrow, now.Name)
	}
	return nil
}

// Rewrite writes the file with other verdicts, one for each scenario in order. Errors: it cannot be
// written, or a verdict has a blank line.
func (f *File) Rewrite(verdicts []string) error {
	var out []string
	last := 0
	for i, s := range f.Scenarios {
		verdict := strings.Split(strings.TrimRight(verdicts[i], "\n"), "\n")
		for _, line := range verdict {
			if strings.TrimSpace(line) == "" {
				return fmt.Errorf("%s: scenario %q: expected a verdict without blank lines, got %q", f.Path, s.Name, verdicts[i])
			}
		}
		out = append(append(out, f.lines[last:s.from]...), verdict...)
		last = s.to
	}
	out = append(out, f.lines[last:]...)
	//nolint:gosec // a file of the repository, which all users may read
	if err := os.WriteFile(f.Path, []byte(strings.Join(out, "\n")+"\n"), 0o644); err != nil {
		return fmt.Errorf("rewrite scenarios: %w", err)
	}
	return nil
}
