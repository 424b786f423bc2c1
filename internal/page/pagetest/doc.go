// Package pagetest generates fleets for tests of the page, in which all that the page shows happens
// at once.
package pagetest
