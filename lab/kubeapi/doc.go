// Package kubeapi is the little that a launcher needs of a Kubernetes client: ask whether a server is ready, read an
// object, apply manifests. It exists so that the launcher stays a small program that starts at once.
package kubeapi
