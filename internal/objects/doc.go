// Package objects keeps what a process knows of the objects of a kind, for controllers to read.
//
// It is fed from outside, by as many watches as there are, and tells whoever asked what has changed.
//
// Guarantees:
//
//   - An older version never replaces a newer one, whichever watch brings it.
//   - Handlers see the changes of all objects one after the other, in the order in which they were fed, and each with what
//     was there before.
//   - Objects can be fed silently and announced later: until then they can be read, and no handler hears of them.
//
// Not guaranteed: that it shows all there is, or that it is current. What is missing here may exist, and an object that
// goes may have gone only from what this process watches.
package objects
