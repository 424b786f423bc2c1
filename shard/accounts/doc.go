// Package accounts finds out which accounts at clouds, and which drivers, do not answer this
// replica, and which of those that others report answer it. It is pure: calls and tries are its
// input, tries that are due and reports its output.
//
// An account whose calls get no answer for a minute is tried: the driver looks for a VM that does
// not exist, with the class of these calls. Without an answer it is failing, until a call or a try
// is answered. Each replica reports its failing accounts, and tries those of the others' reports
// with the same class. So the leader compares the same call. What a cloud refuses it has answered.
//
// Guarantees: what is remembered, reported and tried is bounded, each namespace has a share of it,
// and each failing account has its turn to be reported. A report that an account is reached is
// younger than FailAfter while that may move slots: when a cloud is away for all, no report from
// before is left when the first replica finds out.
//
// Not guaranteed: that the account answers what machines need. A driver that cannot look for VMs
// shows nothing.
package accounts
