// Package pki makes what a lab's components trust and prove who they are with: certificate authorities, certificates,
// the key pair that signs service account tokens, and kubeconfig files.
//
// Everything is made anew for each boot of a lab and is worth nothing outside of it: keys are not encrypted, and
// certificates are valid for a year.
package pki
