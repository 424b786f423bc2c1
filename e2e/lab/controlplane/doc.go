// Package controlplane describes how the components of a cluster are started as local processes:
// their secrets, files, flags and probes. It starts nothing itself.
//
// Everything listens on the loopback interface, uses TLS, and keeps its files in the lab's folder.
// A second cluster has its own authorities and users, and shares only etcd, under a prefix of its
// own.
//
// Its Client is the part of a Kubernetes client that a launcher needs: check whether a server is
// ready, read an object, apply manifests. It exists so that the launcher stays a small program that
// starts at once.
//
// It creates the secrets with which a lab's components authenticate: certificate authorities,
// certificates, the key pair that signs service account tokens, and kubeconfig files.
//
// All secrets are created anew for each boot of a lab and has no use outside of it: keys are not
// encrypted, and certificates are valid for a year.
package controlplane
