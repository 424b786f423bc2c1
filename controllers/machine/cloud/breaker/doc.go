// Package breaker decides whether calls of one kind are sent for one account at a cloud. While a
// cloud refuses or does not answer an account, each of its machines would repeat its calls, and
// hundreds of machines would add to the load or cause a lock-out. It is pure.
//
//	closed ── Failures machines in a row have failed ──► open ── its pause is over, or another class asks ──► half-open
//	   ▲                                                  ▲                                                     │
//	   └──────────────── the cloud answers a call ────────┼─────────────────────────────────────────────────────┤
//	                                                      └── the probe fails: a pause of twice the length ◄────┘
//
// Guarantees, each of them tested with generated worlds:
//
//   - It opens only after calls for Failures different machines have failed without an answer of
//     the cloud in between, so one machine, or few, are never delayed by it.
//   - Only failures count that concern the account: refused credentials, throttling, and no answer;
//     see Outcome.
//   - While it is open, one call at a time is sent, the probe. The pause before it doubles from
//     FirstPause to LongestPause, and is as long as the cloud requests.
//   - A class that has not failed since the last answer does not wait for the pause: a class that
//     the cloud always refuses delays no other class of its account by more than one call.
//   - The first answer closes it.
//
// Not guaranteed: that calls which began before it opened are few; they end by themselves.
package breaker
