// Package pki makes the secrets with which a lab's components authenticate: certificate authorities, certificates,
// the key pair that signs service account tokens, and kubeconfig files.
//
// Everything is made anew for each boot of a lab and has no use outside of it: keys are not encrypted, and
// certificates are valid for a year.
package pki
