package cloudsim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// consoleLines is how many lines of a VM's console are kept.
const consoleLines = 20

// instance contains all that the cloud knows of a VM. It is immutable: a change returns a copy, so
// that readers need no lock once they have a pointer.
type instance struct {
	API cloudapi.Instance `json:"api"`
	// Params is a digest of the request that created it, to distinguish a repeated create from another
	// one with its token.
	Params string `json:"params"`
	// BootstrapToken and Server, the URL of an API server, were found in the user data, and UserData
	// is all of it, which only a VM with a real kubelet reads.
	BootstrapToken string `json:"bootstrapToken,omitempty"`
	Server         string `json:"server,omitempty"`
	UserData       []byte `json:"userData,omitempty"`
	Fate           fate   `json:"fate"`
	// Joined reports whether its Node was registered.
	Joined bool         `json:"joined,omitempty"`
	Health guest.Health `json:"health,omitempty"`
	// StopAt is when a stopping VM has stopped.
	StopAt time.Time `json:"stopAt,omitzero"`
	// EndedAt is when it was terminated.
	EndedAt time.Time `json:"endedAt,omitzero"`
}

// fate are the faults of a VM, decided when it is created. A zero time means never.
type fate struct {
	BootAt time.Time `json:"bootAt"`
	// JoinAt is when its software begins to join the cluster.
	JoinAt      time.Time `json:"joinAt,omitzero"`
	DieAt       time.Time `json:"dieAt,omitzero"`
	LoseReadyAt time.Time `json:"loseReadyAt,omitzero"`
}

// advance applies the changes of a VM up to now. It returns the VM after that (the same pointer
// when nothing has changed), and the time of the next change, zero for never.
func (i *instance) advance(now time.Time) (after *instance, next time.Time) {
	after = i
	change := func() *instance {
		if after == i {
			after = i.clone()
		}
		return after
	}
	due := func(at time.Time) bool { return !at.IsZero() && !at.After(now) }

	if after.API.State == cloudapi.StatePending && due(i.Fate.BootAt) {
		change().API.State = cloudapi.StateRunning
		after.say(now, "booted "+i.API.Image)
		if i.Fate.JoinAt.IsZero() {
			after.say(now, "will never join the cluster: an injected fault")
		}
	}
	if after.API.State == cloudapi.StateRunning && due(i.Fate.DieAt) {
		change().end(now, "it died: an injected fault")
	}
	if after.API.State == cloudapi.StateRunning && due(i.Fate.LoseReadyAt) {
		change().Fate.LoseReadyAt = time.Time{}
		after.Health = guest.NotReady
		after.say(now, "lost its readiness: an injected fault")
	}
	if after.API.State == cloudapi.StateStopping && due(i.StopAt) {
		change().end(now, i.API.StateReason)
	}
	return after, after.nextEvent(now)
}

// nextEvent returns when the VM has to be stepped again; zero is never.
func (i *instance) nextEvent(now time.Time) time.Time {
	var moments []time.Time
	switch i.API.State {
	case cloudapi.StatePending:
		moments = []time.Time{i.Fate.BootAt}
	case cloudapi.StateRunning:
		moments = []time.Time{i.Fate.JoinAt, i.Fate.DieAt, i.Fate.LoseReadyAt}
	case cloudapi.StateStopping:
		moments = []time.Time{i.StopAt}
	case cloudapi.StateTerminated:
	}
	var next time.Time
	for _, at := range moments {
		if at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// poweredOn reports whether the VM's software runs at that time.
func (i *instance) poweredOn(now time.Time) bool {
	return i.API.State == cloudapi.StateRunning && !i.Fate.JoinAt.IsZero() && !i.Fate.JoinAt.After(now)
}

// alive reports whether the VM has not begun to end.
func (i *instance) alive() bool {
	return i.API.State == cloudapi.StatePending || i.API.State == cloudapi.StateRunning
}

// ended reports whether nothing is left of the VM but its record.
func (i *instance) ended() bool { return i.API.State == cloudapi.StateTerminated }

// end terminates a VM; i is a copy that is not shared yet.
func (i *instance) end(now time.Time, reason string) {
	i.API.State = cloudapi.StateTerminated
	i.API.StateReason = reason
	i.EndedAt, i.UserData = now, nil
	i.say(now, "ended: "+reason)
}

// say adds a line to the console; i is a copy that is not shared yet.
func (i *instance) say(now time.Time, line string) {
	lines := append(slices.Clone(i.API.Console), now.UTC().Format("15:04:05.000 ")+line)
	i.API.Console = lines[max(0, len(lines)-consoleLines):]
}

// clone returns a copy that can be changed. Maps and slices are shared and must be replaced, not
// written to.
func (i *instance) clone() *instance {
	c := *i
	return &c
}

// digest identifies the parameters of a create, defaults filled in.
func digest(req cloudapi.CreateInstanceRequest) (string, error) {
	raw, err := json.Marshal(req)
	if err != nil {
		return "", fmt.Errorf("encode the parameters of a create: %w", err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}

// apiServer is the form of the API server in a bootstrap kubeconfig.
var apiServer = regexp.MustCompile(`(?m)\bserver:[ \t]*["']?(https://[^\s"',}]+)`)

// findServer returns the URL of the first API server in the user data, and "" when there is none.
func findServer(userData []byte) string {
	if m := apiServer.FindSubmatch(userData); m != nil {
		return string(m[1])
	}
	return ""
}

// bootstrapToken is the form of Kubernetes' bootstrap tokens.
var bootstrapToken = regexp.MustCompile(`(?:^|[^a-z0-9])([a-z0-9]{6}\.[a-z0-9]{16})(?:[^a-z0-9]|$)`)

// findBootstrapToken returns the first bootstrap token in the user data, and "" when there is none.
func findBootstrapToken(userData []byte) string {
	if m := bootstrapToken.FindSubmatch(userData); m != nil {
		return string(m[1])
	}
	return ""
}
