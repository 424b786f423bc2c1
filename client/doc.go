// Package client holds what is generated from the API types by hack/generate.sh: the typed
// clientset (clientset/versioned, with a fake for tests), listers, and informers. Nothing in it is
// written by hand.
package client
