// Package observe reads the objects that views are computed from, with the rights of the client who
// looks.
//
// Guarantees: lists are read in pages; an object that does not decode does not hide others; a read
// that is not the subject of a view and fails is a view.Missing with the right that it needs; an
// error names that right, too.
//
// Not guaranteed: that the objects of a snapshot are of one moment.
package observe
