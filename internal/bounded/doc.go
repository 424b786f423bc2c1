// Package bounded cuts texts that others write to what fits into what the fleet writes.
//
// Guarantees: a text is never longer than its bound and stays valid UTF-8. Not guaranteed: that what was cut off does not matter;
// logs have the whole of it where it was logged.
package bounded
