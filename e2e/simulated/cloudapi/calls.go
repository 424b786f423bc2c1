package cloudapi

import "time"

// Call is one line of the call log, written before the answer is sent. Calls that took effect and
// were not answered because the cloud was killed are logged when it starts again, as timeouts.
type Call struct {
	// ID is unique; a line that was written twice because the cloud crashed has the same ID.
	ID    uint64    `json:"id"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// Caller is the User-Agent.
	Caller    string    `json:"caller"`
	Operation Operation `json:"operation"`
	// Token is the client token of a create.
	Token string `json:"token,omitempty"`
	// Machine is the name of the VM that the call is about, as far as it is known.
	Machine string `json:"machine,omitempty"`
	// MachineUID is the client token that this VM was created with, which a fleet sets to the
	// Machine's UID.
	MachineUID string `json:"machineUID,omitempty"`
	// Instance is the ID of that VM.
	Instance string `json:"instance,omitempty"`
	Status   int    `json:"status"`
	// Error is the cloud's error code; empty on success, CallTimeout for a call that was never
	// answered.
	Error string `json:"error,omitempty"`
	// Changed reports whether the call changed anything: false for a repeated create or delete.
	Changed bool `json:"changed"`
}
