// Package objectversion orders the resourceVersions of objects of one kind. It is pure.
//
// Guarantee: a version that cannot be read, which a Kubernetes API server does not make, never has
// an older object kept in the place of one that was read later.
package objectversion

import "k8s.io/apimachinery/pkg/util/resourceversion"

// Compare returns a negative number if what was read is older than what was known before, 0 if it
// is the same version, and a positive number if it is newer. Versions that cannot be compared count
// as newer: what the API server answered last is right, and nothing is kept permanently. Therefore
// the order of the arguments matters, and callers ignore only what is certainly older.
func Compare(read, known string) int {
	order, err := resourceversion.CompareResourceVersion(read, known)
	if err != nil {
		return 1
	}
	return order
}
