// Package flags manages the flags of a command of cobra in groups: each declared in one line, set
// on the command line or in a file, checked, and printed in the command's help and as a reference.
//
// It guarantees that the file accepts all flags of the command line, under the same names; that the
// command line takes precedence; that a name which is no flag is an error that names the nearest
// one; that a value which is rejected is reported with its place, what was expected, what came, and
// what to do; and that a flag without an effect which a user has set is in Ineffective.
//
// It does not read the environment, does not watch the file, and does not check what concerns
// several flags.
//
// Commands are cobra's, and parsing is pflag's. The groups of k8s.io/component-base are not used:
// they print help only, and would bring a dozen modules.
package flags
