package flags

import (
	"errors"
	"strconv"
	"strings"
)

// whole is the value of a flag with a whole number in decimal digits. pflag's own would read 010 as
// 8.
type whole int

var errLeadingZero = errors.New("a leading zero means octal to some readers and nothing to others")

// String is pflag.Value's.
func (w *whole) String() string { return strconv.Itoa(int(*w)) }

// Set is pflag.Value's.
func (w *whole) Set(text string) error {
	if digits := strings.TrimLeft(text, "+-"); len(digits) > 1 && digits[0] == '0' {
		return errLeadingZero
	}
	n, err := strconv.Atoi(text)
	if err == nil {
		*w = whole(n)
	}
	return err
}

// Type is pflag.Value's.
func (w *whole) Type() string { return "int" }
