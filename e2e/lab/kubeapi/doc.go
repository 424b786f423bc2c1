// Package kubeapi is the part of a Kubernetes client that a launcher needs: check whether a server is ready, read an
// object, apply manifests. It exists so that the launcher stays a small program that starts at once.
package kubeapi
