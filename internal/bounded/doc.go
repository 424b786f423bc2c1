// Package bounded cuts texts of other authors to the size that fits into the objects that the fleet
// writes. It is pure.
//
// Guarantees: a text is never longer than its bound and stays valid UTF-8. Not guaranteed: that the
// part that was cut off is recorded elsewhere.
package bounded
