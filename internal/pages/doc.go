// Package pages reads lists of the API in pages.
//
// Guarantees: a list is read past all caches, with at most Size objects in memory at a time, and as a whole or with an error.
//
// Not guaranteed: that objects which cannot be decoded are in the list.
package pages
