package main

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// unknown is SPDX's word for what the author of a document does not state.
const unknown = "NOASSERTION"

// notInIdentifiers matches what SPDX does not permit in identifiers.
var notInIdentifiers = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// sbom returns the list of what is in an image of a program, in SPDX 2.3 as JSON. recorded is what
// Go has recorded in the binary.
func sbom(program string, image v1.Image, platform v1.Platform, recorded *debug.BuildInfo, r release, created time.Time) ([]byte, error) {
	digest, err := image.Digest()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = spdxjson.Write(document(program, digest, platform, recorded, bundleVersion(), r, created), &text, spdxjson.Indent("  "))
	return text.Bytes(), err
}

// document describes an image: it contains the binary, which depends on its modules and Go's
// standard library, and certificates.
func document(
	program string, digest v1.Hash, platform v1.Platform, recorded *debug.BuildInfo, certificates string, r release, created time.Time,
) *v2_3.Document {
	image := &v2_3.Package{
		PackageName: program, PackageSPDXIdentifier: "Image", PackageVersion: r.version, PackageDownloadLocation: unknown,
		PrimaryPackagePurpose: "CONTAINER", PackageLicenseDeclared: unknown,
		PackageChecksums: []common.Checksum{{Algorithm: common.SHA256, Value: digest.Hex}}, // of the manifest
		PackageExternalReferences: []*v2_3.PackageExternalReference{
			reference(fmt.Sprintf("pkg:oci/%s@%s?arch=%s&os=%s",
				program, strings.Replace(digest.String(), ":", "%3A", 1), platform.Architecture, platform.OS)),
		},
	}
	main := goModule(debug.Module{Path: recorded.Main.Path, Version: r.version})
	main.PackageLicenseDeclared, main.PrimaryPackagePurpose = "Apache-2.0", "APPLICATION"
	roots := goModule(debug.Module{Path: bundleModule, Version: certificates})
	d := &v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      strings.TrimSpace(fmt.Sprintf("%s %s %s", program, platform, r.version)),
		DocumentNamespace: fmt.Sprintf("https://%s/sbom/%s", module, digest),
		CreationInfo: &v2_3.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: module + "/tools/image"}}, Created: created.Format(time.RFC3339),
		},
		Packages: []*v2_3.Package{image, main, roots},
	}
	relate := func(from common.ElementID, relationship string, to common.ElementID) {
		d.Relationships = append(d.Relationships, &v2_3.Relationship{
			RefA: common.DocElementID{ElementRefID: from}, Relationship: relationship, RefB: common.DocElementID{ElementRefID: to},
		})
	}
	relate("DOCUMENT", common.TypeRelationshipDescribe, image.PackageSPDXIdentifier)
	relate(image.PackageSPDXIdentifier, common.TypeRelationshipContains, main.PackageSPDXIdentifier)
	relate(image.PackageSPDXIdentifier, common.TypeRelationshipContains, roots.PackageSPDXIdentifier)
	dependencies := []*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(recorded.GoVersion, "go")}}
	for _, dependency := range append(dependencies, recorded.Deps...) {
		p := goModule(*cmp.Or(dependency.Replace, dependency))
		d.Packages = append(d.Packages, p)
		relate(main.PackageSPDXIdentifier, common.TypeRelationshipDependsOn, p.PackageSPDXIdentifier)
	}
	return d
}

// goModule describes a Go module. The standard library is the module stdlib, as in databases of
// vulnerabilities.
func goModule(m debug.Module) *v2_3.Package {
	p := &v2_3.Package{
		PackageName: m.Path, PackageVersion: m.Version, PackageDownloadLocation: unknown,
		PackageSPDXIdentifier:  common.ElementID("Go-" + notInIdentifiers.ReplaceAllString(m.Path+"-"+m.Version, "-")),
		PackageLicenseDeclared: unknown, PrimaryPackagePurpose: "LIBRARY",
		PackageExternalReferences: []*v2_3.PackageExternalReference{reference(packageURL(m))},
	}
	if m.Sum != "" { // It is Go's own hash of the files, and none of those that SPDX knows.
		p.PackageComment = "go.sum " + m.Sum
	}
	return p
}

// packageURL returns the name of a module that scanners look for.
func packageURL(m debug.Module) string {
	if m.Version == "" {
		return "pkg:golang/" + m.Path
	}
	return "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")
}

func reference(url string) *v2_3.PackageExternalReference {
	return &v2_3.PackageExternalReference{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: url}
}

// bundleVersion returns the version of the certificates that this program has, or "" when Go has
// not recorded it.
func bundleVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, dependency := range info.Deps {
		if dependency.Path == bundleModule {
			return dependency.Version
		}
	}
	return ""
}
