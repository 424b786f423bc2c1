// Package record watches the Machines of a lab while a test disturbs the fleet, and passes them,
// the cloud's call log and the API servers' audit logs to package check when the test is over.
package record
