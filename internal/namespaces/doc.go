// Package namespaces watches the annotations of Namespaces by which people set how the fleet treats
// them, and which of them a selector of labels selects for the fleet.
//
// Guarantees:
//
//   - Of a Namespace only its name, its annotations below fleet.machine.sapcloud.io/ and the labels
//     that the selector names are stored.
//   - Where the fleet serves one Namespace, only that one is listed and watched.
//   - Where the API server does not permit the list, that is logged once, and no Namespace has an
//     annotation: Known is true. The list is tried again, so that a right that is granted later has
//     its effect without a restart.
//   - An annotation that was read once counts until the API server reports another one, also while
//     it does not answer. The same holds for the selection, also while the list is not permitted.
//
// Not guaranteed: that an annotation is current. A watch may be late.
package namespaces
