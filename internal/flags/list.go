package flags

import "strings"

// list is the value of a flag with several words. Setting it replaces what was there.
type list []string

// String is pflag.Value's.
func (l *list) String() string { return strings.Join(*l, ",") }

// Set is pflag.Value's.
func (l *list) Set(text string) error {
	*l = nil
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word != "" {
			*l = append(*l, word)
		}
	}
	return nil
}

// Type is pflag.Value's.
func (l *list) Type() string { return "list" }
