package main

import (
	"fmt"
	"os"
	"strings"
)

// listed is a row of the list.
type listed struct {
	id, change, expected string
}

// header is the first line of the list.
const header = "# mutant\tchange\texpected: the test that fails, or \"equivalent: \" and the reason"

// readList reads the list; a missing one is empty. Errors: rows without three columns, IDs that occur twice.
func readList(name string) (rows map[string]listed, err error) {
	rows = map[string]listed{}
	content, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return rows, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the list: %w", err)
	}
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "\t")
		if len(columns) != 3 {
			return nil, fmt.Errorf("%s: expected 3 columns, got %q", name, line)
		}
		if _, twice := rows[columns[0]]; twice {
			return nil, fmt.Errorf("%s: expected %s once", name, columns[0])
		}
		rows[columns[0]] = listed{columns[0], columns[1], columns[2]}
	}
	return rows, nil
}

// writeList writes the rows of all mutants in their order.
func writeList(name string, mutants []*mutant, rows map[string]listed) error {
	var out strings.Builder
	out.WriteString(header + "\n")
	for _, m := range mutants {
		expected := rows[m.id].expected
		if expected == "" {
			expected = "unknown"
		}
		fmt.Fprintf(&out, "%s\t%s\t%s\n", m.id, m.change, expected)
	}
	if err := os.WriteFile(name, []byte(out.String()), 0o644); err != nil {
		return fmt.Errorf("write the list: %w", err)
	}
	return nil
}

// isEquivalent reports whether a row has a reason why no test can kill the mutant.
func (l listed) isEquivalent() bool { return strings.HasPrefix(l.expected, "equivalent: ") }
