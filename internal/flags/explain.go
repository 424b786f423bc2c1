package flags

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// explain translates an error of pflag to what was expected, what came and what to do.
func (s *Set) explain(err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		name := unknown.GetSpecifiedName()
		return fmt.Errorf("there is no flag --%s; the nearest is --%s", name, s.nearest(name))
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		d := s.find(invalid.GetFlag().Name)
		return d.expected(d.expectation(), invalid.GetValue())
	}
	return err
}

// expectation describes the values that a flag accepts.
func (d *declared) expectation() string {
	switch d.Value.Type() {
	case "bool":
		return "true or false"
	case "int":
		return "a whole number below 2^63 in decimal digits, without leading zeros"
	case "float64":
		return "a number"
	case "duration":
		return "a duration such as 30s, 10m or 1h30m"
	case "list":
		return "words with commas between them, or a list of texts"
	case "string":
		return "a text, in quotes where YAML would read another type"
	}
	return d.Usage
}

// nearest is the flag whose name is the most similar to the given one. Dashes, underscores and case
// make no difference: machineDrainTimeout is machine-drain-timeout.
func (s *Set) nearest(name string) string {
	var best string
	least := -1
	for _, d := range s.flags {
		if distance := edits(plain(name), plain(d.Name)); least < 0 || distance < least {
			best, least = d.Name, distance
		}
	}
	return best
}

func plain(name string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
}

// edits returns how many bytes have to be added, removed or changed to turn one name into the
// other.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
