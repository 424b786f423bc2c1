// Package clusters lets the VMs of one cloud join many clusters: each the one whose API server its
// user data names, as a bootstrap kubeconfig does, in a line such as
//
//	server: https://127.0.0.1:6443
//
// A cluster costs nothing before its first VM. Not guaranteed: volumes of clusters other than the
// first.
package clusters
