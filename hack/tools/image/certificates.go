package main

import (
	"bytes"
	"encoding/pem"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// bundleModule is the module with the certificates.
const bundleModule = "golang.org/x/crypto/x509roots/fallback"

// certificates returns the CA certificates of the image, as PEM. Those that Mozilla trusts under a
// condition are left out: a file of certificates cannot express it, and without the condition they
// would be trusted for more.
func certificates() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes everything
		}
	}
	return text.Bytes()
}
