//go:build e2e

// Package chaos breaks a lab on purpose and looks whether everything ends right.
//
// SEED makes a run repeatable as far as the machine allows; it is printed. With -short the runs are a fraction of their
// length.
package chaos
