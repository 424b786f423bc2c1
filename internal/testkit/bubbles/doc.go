// Package bubbles runs the tests of packages that run client-go's reflectors in testing/synctest.
//
// client-go waits after an error until some time has passed since the last one in the process. That
// was in another bubble, or in none, whose clock is ahead by seconds or by years: a reflector that
// fails once would never continue.
//
// Guarantees: errors that client-go handles by itself delay nothing. Not guaranteed: that they are
// printed.
package bubbles
