package main

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// TestCertificates: all of them are CAs, and those that are trusted under a condition are not
// there.
func TestCertificates(t *testing.T) {
	conditional := map[string]bool{}
	unconditional := 0
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			conditional[string(root.Certificate)] = true
		} else {
			unconditional++
		}
	}
	found := 0
	for block, rest := pem.Decode(certificates()); block != nil; block, rest = pem.Decode(rest) {
		found++
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !certificate.IsCA {
			t.Errorf("certificate %d: expected that of a CA, got %v, %v", found, certificate, err)
		}
		if conditional[string(block.Bytes)] {
			t.Errorf("%s is trusted without its condition", certificate.Subject)
		}
	}
	if found != unconditional || found < 50 {
		t.Errorf("expected %d certificates, at least 50, got %d", unconditional, found)
	}
}

// TestDocument: each module is there as it was linked, in a form that scanners find.
func TestDocument(t *testing.T) {
	recorded := &debug.BuildInfo{
		GoVersion: "go1.26.8", Main: debug.Module{Path: module, Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "example.org/a_b", Version: "v2.0.0+incompatible", Sum: "h1:abc="},
			{Path: "example.org/old", Version: "v1.0.0", Replace: &debug.Module{Path: "example.org/new", Version: "v1.1.0"}},
		},
	}
	d := document(fleet, v1.Hash{Algorithm: "sha256", Hex: "00ff"}, v1.Platform{OS: "linux", Architecture: "arm64"}, recorded, "v0.9.0",
		testRelease, time.Unix(0, 0).UTC())
	type row struct{ id, name, version, url, comment string }
	var got []row
	for _, p := range d.Packages {
		got = append(got, row{
			string(p.PackageSPDXIdentifier), p.PackageName, p.PackageVersion, p.PackageExternalReferences[0].Locator, p.PackageComment,
		})
	}
	want := []row{
		{"Image", fleet, "v1.2.3", "pkg:oci/machine-controller-fleet@sha256%3A00ff?arch=arm64&os=linux", ""},
		{"Go-github.com-machine-controller-fleet-machine-controller-fleet-v1.2.3", module, "v1.2.3", "pkg:golang/" + module + "@v1.2.3", ""},
		{"Go-golang.org-x-crypto-x509roots-fallback-v0.9.0", bundleModule, "v0.9.0", "pkg:golang/" + bundleModule + "@v0.9.0", ""},
		{"Go-stdlib-1.26.8", "stdlib", "1.26.8", "pkg:golang/stdlib@1.26.8", ""},
		{
			"Go-example.org-a-b-v2.0.0-incompatible", "example.org/a_b", "v2.0.0+incompatible", "pkg:golang/example.org/a_b@v2.0.0%2Bincompatible",
			"go.sum h1:abc=",
		},
		{"Go-example.org-new-v1.1.0", "example.org/new", "v1.1.0", "pkg:golang/example.org/new@v1.1.0", ""},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
	var relationships []string
	for _, r := range d.Relationships {
		relationships = append(relationships, string(r.RefA.ElementRefID)+" "+r.Relationship+" "+string(r.RefB.ElementRefID))
	}
	wantRelationships := []string{
		"DOCUMENT DESCRIBES Image",
		"Image CONTAINS " + want[1].id,
		"Image CONTAINS " + want[2].id,
		want[1].id + " DEPENDS_ON " + want[3].id,
		want[1].id + " DEPENDS_ON " + want[4].id,
		want[1].id + " DEPENDS_ON " + want[5].id,
	}
	if diff := cmp.Diff(wantRelationships, relationships); diff != "" {
		t.Errorf("relationships (-want +got):\n%s", diff)
	}
}

// TestDockerfileMatchesTheImage: both ways to build it result in the same user, entry point and
// places.
func TestDockerfileMatchesTheImage(t *testing.T) {
	text, err := os.ReadFile("../../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"USER " + user,
		`ENTRYPOINT ["/` + fleet + `"]`,
		"COPY --from=build /" + fleet + " /" + fleet,
		"COPY LICENSE /licenses/LICENSE",
	} {
		if !strings.Contains(string(text), "\n"+line+"\n") {
			t.Errorf("Dockerfile: expected the line %s", line)
		}
	}
	modules, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(modules)
	if want == nil || !strings.Contains(string(text), "\nARG GO_VERSION="+string(want[1])+"\n") {
		t.Errorf("Dockerfile: expected the GO_VERSION of go.mod, %s", want)
	}
}
