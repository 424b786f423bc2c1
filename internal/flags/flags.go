package flags

import (
	"cmp"
	"errors"
	goflag "flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Trait is a property of a flag beyond its type.
type Trait int

const (
	// OrZero lets a number or a duration be 0, which otherwise has to be more.
	OrZero Trait = iota + 1
	// Ignored marks a flag that is accepted because existing manifests have it, and that has no
	// meaning here. Its usage names the replacement, or why it is not needed.
	Ignored
)

// Set is the flags of a command. Create one with New, declare flags in its groups, and call
// Complete when the command runs.
type Set struct {
	parser *pflag.FlagSet
	groups []*Group
	flags  []*declared
	file   string
}

// declared is a flag with the properties that pflag does not have.
type declared struct {
	*pflag.Flag

	traits   []Trait
	check    func() error // of the value; nil when every value of the type is valid
	fromFile string       // the file that the value came from; "" means the command line or the default
}

// Group is flags that belong together. Its flags are printed in the order in which they are
// declared.
type Group struct {
	title string
	set   *Set
	flags []*declared
}

// New returns the Set of the flags of a command, without flags. The command then accepts flags
// only, no arguments; explains errors in them; and prints them in groups, as the commands below it
// do.
func New(cmd *cobra.Command) *Set {
	s := &Set{parser: cmd.Flags()}
	s.parser.SortFlags = false
	cmd.Args = flagsOnly
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.SuggestionsMinimumDistance = 2 // cobra's own default, which cobra sets only when it makes the suggestion itself
	cmd.SetUsageFunc(usage)
	cmd.SetFlagErrorFunc(func(failed *cobra.Command, err error) error {
		if failed != cmd {
			return err // a command below this one, which has other flags
		}
		return s.explain(err)
	})
	return s
}

// Group begins a group.
func (s *Set) Group(title string) *Group {
	g := &Group{title: title, set: s}
	s.groups = append(s.groups, g)
	return g
}

// Bool declares a flag that is true or false.
func (g *Group) Bool(p *bool, name string, value bool, usage string, traits ...Trait) {
	g.set.parser.BoolVar(p, name, value, usage)
	g.declare(name, traits)
}

// String declares a flag for text.
func (g *Group) String(p *string, name, value, usage string, traits ...Trait) {
	g.set.parser.StringVar(p, name, value, usage)
	g.declare(name, traits)
}

// List declares a flag for words that are separated by commas. A file may have a YAML list instead.
func (g *Group) List(p *[]string, name string, value []string, usage string, traits ...Trait) {
	*p = value
	g.set.parser.Var((*list)(p), name, usage)
	g.declare(name, traits)
}

// Int declares a flag for a whole number of more than 0.
func (g *Group) Int(p *int, name string, value int, usage string, traits ...Trait) {
	*p = value
	g.set.parser.Var((*whole)(p), name, usage)
	positive(g.declare(name, traits), p)
}

// Float declares a flag for a number of more than 0.
func (g *Group) Float(p *float64, name string, value float64, usage string, traits ...Trait) {
	g.set.parser.Float64Var(p, name, value, usage)
	positive(g.declare(name, traits), p)
}

// Duration declares a flag for a duration of more than 0.
func (g *Group) Duration(p *time.Duration, name string, value time.Duration, usage string, traits ...Trait) {
	g.set.parser.DurationVar(p, name, value, usage)
	positive(g.declare(name, traits), p)
}

// Go declares a flag of a package that has it already, with another usage. As with any other,
// declaring it sets it to its default: its value may be global to the process.
func (g *Group) Go(f *goflag.Flag, value, usage string) {
	if err := f.Value.Set(value); err != nil {
		panic(fmt.Sprintf("flag %s cannot have the default %q that the program gives it: %v", f.Name, value, err))
	}
	g.set.parser.AddGoFlag(f)
	g.set.parser.Lookup(f.Name).Usage = usage
	g.declare(f.Name, nil)
}

// Config declares --config, the file that flags are read from.
func (g *Group) Config() {
	g.String(&g.set.file, configFlag, "", "YAML file with flags that the command line does not have: their names, without dashes, as keys")
}

// declare records the properties that pflag does not have, and registers the flag with pflag.
func (g *Group) declare(name string, traits []Trait) *declared {
	d := &declared{Flag: g.set.parser.Lookup(name), traits: traits}
	d.DefValue = shortDefault(d.Flag)
	d.Annotations = map[string][]string{groupAnnotation: {g.title}}
	g.flags = append(g.flags, d)
	g.set.flags = append(g.set.flags, d)
	return d
}

// shortDefault returns the default of a flag with durations such as 2h instead of 2h0m0s.
func shortDefault(f *pflag.Flag) string {
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

// positive adds the check of a number.
func positive[T cmp.Ordered](d *declared, p *T) {
	var zero T
	d.check = func() error {
		switch {
		case *p > zero, *p == zero && d.is(OrZero), d.is(Ignored):
			return nil
		case d.is(OrZero):
			return d.expected("0 or more", d.Value.String())
		}
		return d.expected("more than 0", d.Value.String())
	}
}

func (d *declared) is(trait Trait) bool { return slices.Contains(d.traits, trait) }

// expected returns the error of a value: what was expected, what came and what to do.
func (d *declared) expected(what, got string) error {
	without := ""
	if d.DefValue != "" {
		without = " for " + d.DefValue
	}
	return fmt.Errorf("%s: expected %s, got %q; correct it, or leave it out%s", d.place(), what, got, without)
}

// place names the source of the value.
func (d *declared) place() string {
	if d.fromFile != "" {
		return d.fromFile + ": " + d.Name
	}
	return "--" + d.Name
}

// Complete reads the file that the command line names, and checks the values. It is called once,
// when the command line is parsed. Errors: a file that cannot be read, keys in it that are not
// flags, and invalid values.
func (s *Set) Complete() error {
	if s.file != "" {
		if err := s.readFile(); err != nil {
			return err
		}
	}
	var errs []error
	for _, d := range s.flags {
		if d.check != nil {
			errs = append(errs, d.check())
		}
	}
	return errors.Join(errs...)
}

// Ineffective is a flag that was set and has no effect.
type Ineffective struct{ Flag, Why string }

// Ineffective returns the flags that were set without effect.
func (s *Set) Ineffective() (ineffective []Ineffective) {
	for _, d := range s.flags {
		if d.Changed && d.is(Ignored) {
			ineffective = append(ineffective, Ineffective{Flag: d.place(), Why: d.Usage})
		}
	}
	return ineffective
}

// Value is a flag as a text of the command line.
type Value struct{ Name, Text string }

// Values returns all flags with their values, in the order of their declaration.
func (s *Set) Values() []Value {
	values := make([]Value, len(s.flags))
	for i, d := range s.flags {
		values[i] = Value{Name: d.Name, Text: d.Value.String()}
	}
	return values
}

// find returns the flag of that name, nil when there is none.
func (s *Set) find(name string) *declared {
	for _, d := range s.flags {
		if d.Name == name {
			return d
		}
	}
	return nil
}
