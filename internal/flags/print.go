package flags

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// helpWidth is how many columns help takes at most.
const helpWidth = 100

// Help is what --help prints: each flag with its default, and below it what it means.
func (s *Set) Help() string {
	var b strings.Builder
	b.WriteString(wrap(s.about, "") + "\n\nUsage:\n  " + s.program + " [--flag=value ...]\n")
	for _, g := range s.groups {
		b.WriteString("\n" + g.title + ":\n")
		for _, d := range g.flags {
			fmt.Fprintf(&b, "  --%s=%s\n%s\n", d.Name, defaultOf(d.Flag), wrap(d.describe(), "      "))
		}
	}
	return b.String()
}

// Markdown is the reference: a section with a table for each group.
func (s *Set) Markdown() string {
	var b strings.Builder
	for _, g := range s.groups {
		b.WriteString("## " + g.title + "\n\n| flag | default | meaning |\n|---|---|---|\n")
		for _, d := range g.flags {
			value := defaultOf(d.Flag)
			if value != "" {
				value = "`" + value + "`"
			}
			fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", d.Name, value, strings.ReplaceAll(d.describe(), "|", `\|`))
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// describe is the usage, with what the traits add.
func (d *declared) describe() string {
	if why := d.noEffectYet(); why != "" {
		return d.Usage + " (" + why + ")"
	}
	return d.Usage
}

// defaultOf is the default as one would write it: 2h, not 2h0m0s.
func defaultOf(f *pflag.Flag) string {
	text := f.DefValue
	if f.Value.Type() == "duration" {
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		if strings.HasSuffix(text, "h0m") {
			text = strings.TrimSuffix(text, "0m")
		}
	}
	return text
}

// wrap breaks a text into lines that begin with the indent.
func wrap(text, indent string) string {
	lines := []string{}
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len(line)+len(word) >= helpWidth && strings.TrimSpace(line) != "" {
			lines = append(lines, strings.TrimRight(line, " "))
			line = indent
		}
		line += word + " "
	}
	return strings.Join(append(lines, strings.TrimRight(line, " ")), "\n")
}
