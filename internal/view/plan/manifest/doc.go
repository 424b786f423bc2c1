// Package manifest reads the files of a change, and returns the objects that the API server would
// have if the files were applied.
//
// Guarantees: an object in a file is merged with the object as kubectl apply does it: fields that
// the file has are set, those that were applied before and are missing in it are removed, and
// others stay, such as replicas that an autoscaler sets. Fields that the kind does not have are
// errors. An error says what was expected, what the file has and what to do.
//
// Not guaranteed: what admission webhooks and defaults of another version of the definitions would
// add, and the rules of definitions that validation does not have.
package manifest
