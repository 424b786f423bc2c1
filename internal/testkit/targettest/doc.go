// Package targettest has what tests of several packages need of a target cluster for which the fake
// clientset of client-go stands.
package targettest
