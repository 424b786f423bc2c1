// Package apitest records what controllers report in tests: their Events, and the receipts of their deletions.
package apitest
