// Command image builds the container image of machine-controller-fleet, or of another program of
// the repository, as an OCI image layout, and pushes it to a registry. It needs Go and the module
// proxy: no container runtime, no base image, and no registry to build.
//
// Guaranteed: the same sources, version, commit, date, platforms and version of Go result in the
// same digest, in any folder and on any computer. The binary is linked statically; times in the
// image are the date that is given, and those of files are the Unix epoch.
//
// The image has the binary, which is the entry point, CA certificates and the license, and runs as
// user 65532. It has no shell, no /etc/passwd and no /tmp: the binary looks up no user and writes
// only below --state-dir. The certificates are Mozilla's, from
// golang.org/x/crypto/x509roots/fallback/bundle at the version of go.mod. They are a file and not
// part of the binary, so that SSL_CERT_FILE and mounted certificates replace them as elsewhere.
//
// Next to the layout there is, for each platform, a list of what is in the image (SBOM, SPDX 2.3 as
// JSON). It has the modules that Go has recorded in the binary, and the bundle of certificates. It
// names no licenses of modules: Go does not record them.
//
// Signing is not done here; .github/workflows/release.yaml does it. ko builds such images, too, but
// takes its base image from a registry only, and depends on the clients of three clouds.
package main
