// Package rates bounds how often something is done for each of many keys, and has the numbers of what is bounded like that.
//
// Guarantees: what was not done for long may be done at once, a burst of it, and on average it is done once in the interval; what
// is remembered of keys is bounded by those for which it makes a difference. Not guaranteed: that what may not be done now is done
// later; the caller has to ensure that.
package rates
