// Package driverv1 is version 1 of the driver protocol: what hack/generate.sh generates from
// driver.proto. Drivers in Go use package plugin, and need nothing of this one.
package driverv1
