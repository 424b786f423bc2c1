// Package apitest records what controllers report in tests, their Events and the receipts of their
// deletions, and holds none of these deletions.
package apitest
