// Package listhealth records whether an API server answers lists: where small requests are answered and large ones are not, established
// watches still deliver, and what is listed live before decisions with consequences is not known.
//
// Guaranteed: only lists of the resources that were named count, and a list that is canceled is evidence of nothing.
//
// Not guaranteed: that lists of other resources are answered, or that a list that is slow is.
package listhealth
