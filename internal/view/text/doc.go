// Package text renders views as text for terminals. It is pure: a view and a Style are its input.
//
// Guarantees: no line is longer than the width of the style, unless the columns before the last one
// are; with the width 0 nothing is cut. Without colors there are no control characters but line
// ends, also where an object has some in a message.
//
// Not guaranteed: a format that programs can parse. They read the JSON of a view.
package text
