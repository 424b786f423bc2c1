// Package image runs a fleet in a lab with the binary of the container image in bin/image, which
// `make image` builds. It reads the image's layout without the library that has written it. What
// the image consists of is tested in hack/tools/image.
package image
