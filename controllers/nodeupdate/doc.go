// Package nodeupdate reads how far the update in place of a Node is, and takes all traces of one off it. It is for both halves of
// updates in place: the one that selects Nodes, and the one that sees to a machine. It is pure.
//
// Guarantee: a Node that was set free carries nothing of the update but its condition, and gets no pods before its critical
// components are said to be ready, like a new one.
package nodeupdate
