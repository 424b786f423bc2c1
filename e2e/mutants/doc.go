// Command mutants measures the tests of the protocol by mutation: it removes or weakens one rule of the code at a time and runs
// the tests, from the cheapest to the most expensive, until one fails. A mutant that no test kills survives. It is started by
// `make mutants`; docs/mutants.md has the figures.
//
// All mutants of a package are compiled into one test binary by `go test -overlay`, so the work tree is never changed: each
// mutated expression calls a generated package that reports whether the environment variable MUTANT selects the mutant. A mutant
// that does not compile is left out.
//
// mutants.tsv lists every mutant by an ID that consists of package, function, operator and the mutated source, so that edits
// elsewhere keep it. The last column has the test that is expected to fail, or the reason why the mutant is equivalent: that there
// is no observable difference to the code without it.
//
// Results are kept in .mutants/ by the content of the test binary: a second run repeats only what has changed.
//
// It does not mutate constants, package-level variables, logging, metrics and locking.
package main
