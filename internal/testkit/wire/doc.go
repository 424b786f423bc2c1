// Package wire tests the form that Go types of an API have on the wire.
//
// Guarantees: a field that is renamed, removed, or changes its type is reported, and so is one that
// a manifest has and the type does not. Not guaranteed: that the CustomResourceDefinition accepts a
// manifest. Tests with an API server do that.
package wire
