// Package check checks API servers, and keeps what reach decides of each.
//
// A Server is checked every period, at once after a request to it has failed, and more often while
// it does not answer. One check is a read of an object that need not exist: a NotFound from the
// server's storage is an answer.
package check
