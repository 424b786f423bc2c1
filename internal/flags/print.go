package flags

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	// helpWidth is how many columns help takes at most.
	helpWidth = 100
	// groupAnnotation has the title of the group of a flag.
	groupAnnotation = "machine-controller-fleet/group"
	// withoutGroup is the title of flags of cobra's, such as --help. They are printed last.
	withoutGroup = "General flags"
)

// usage prints what follows the description of a command in its help. cobra has no groups of flags.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if cmd.Runnable() {
		b.WriteString("  " + cmd.UseLine() + "\n")
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("  " + cmd.CommandPath() + " [command]\n\nCommands:\n")
		for _, below := range cmd.Commands() {
			if below.IsAvailableCommand() || below.Name() == "help" {
				fmt.Fprintf(&b, "  %-*s  %s\n", below.NamePadding(), below.Name(), below.Short)
			}
		}
	}
	printGroups(&b, cmd.LocalFlags())
	_, err := io.WriteString(cmd.OutOrStderr(), b.String())
	return err
}

// printGroups prints flags, those of a group together.
func printGroups(b *strings.Builder, all *pflag.FlagSet) {
	var titles []string
	groups := map[string]*pflag.FlagSet{}
	all.VisitAll(func(f *pflag.Flag) {
		title := withoutGroup
		if of := f.Annotations[groupAnnotation]; len(of) > 0 {
			title = of[0]
		}
		if groups[title] == nil {
			groups[title] = pflag.NewFlagSet(title, pflag.ContinueOnError)
			groups[title].SortFlags = false
			titles = append(titles, title)
		}
		groups[title].AddFlag(f)
	})
	if i := slices.Index(titles, withoutGroup); i >= 0 {
		titles = append(slices.Delete(titles, i, i+1), withoutGroup)
	}
	for _, title := range titles {
		b.WriteString("\n" + title + ":\n" + groups[title].FlagUsagesWrapped(helpWidth))
	}
}

// flagsOnly rejects arguments that are not flags.
func flagsOnly(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("expected flags only, got %q; the nearest command is %s", args, near[0])
	}
	return fmt.Errorf("expected flags only, got %q; a value belongs to its flag with =, as in --flag=value", args)
}

// Markdown returns the reference: a section with a table for each group.
func (s *Set) Markdown() string {
	var b strings.Builder
	for _, g := range s.groups {
		b.WriteString("## " + g.title + "\n\n| flag | default | meaning |\n|---|---|---|\n")
		for _, d := range g.flags {
			value := d.DefValue
			if value != "" {
				value = "`" + value + "`"
			}
			fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", d.Name, value, strings.ReplaceAll(d.Usage, "|", `\|`))
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}
