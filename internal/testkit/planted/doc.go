// Package planted finds secrets that a test has planted in what a fleet shows: as they are, in
// base64, in URL encoding, in hexadecimal digits and quoted.
//
// Not found are parts of a secret, and secrets in other encodings.
package planted
