// Package rates limits how often an operation is done for each of many keys, and has the limits of the fleet's operations.
//
// Guarantees: an operation that was not done for long may be done at once, a burst of it, and on average it is done once in
// the interval; the remembered keys are bounded by those for which it makes a difference. Not guaranteed: that an operation
// that may not be done now is done later; the caller has to ensure that.
package rates
