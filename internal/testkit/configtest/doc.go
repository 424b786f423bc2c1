// Package configtest runs controllers of machine configuration against clusters in memory, for
// their tests.
package configtest
