// Package expand renders templates with the values of the ControllerConfig to MachineConfigs, one
// for each template and role. It is pure.
//
// A template has a name of the form NN-name.yaml, for all roles, or NN-name.role.yaml, for one
// role, where it replaces that for all. It is a text/template that results in a Fragment as YAML,
// or in nothing: then there is no MachineConfig. The MachineConfig is named NN-role-name, and has
// the role in the label v1alpha1.LabelRole, by which pools select it.
//
// Templates may be hostile. A missing value is an error. Only the functions of this package and
// some of text/template exist, none of which does I/O, calls methods, or formats with a width.
// Sizes of templates, of results and of all that functions return are bounded, and so is the number
// of rounds of loops and of calls of templates: rendering ends, after a time that no template can
// extend much beyond a second.
//
// Guarantees: equal inputs have equal results; all templates are rendered, or none; every
// MachineConfig that is returned is valid for itself. No error contains a value, because values may
// be secrets.
package expand
