package credentials

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// The target cluster decides by its own clock whether a token has expired.
func TestTokenLastsByTheClockOfTheTargetCluster(t *testing.T) {
	for _, ahead := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		server := apiserver.Recording()
		cluster := target.New(server.Core())
		cluster.Lead = func() time.Duration { return ahead }
		process := newTokens(now)
		for range 2 { // created, and found
			_, expiry, err := process.Create(t.Context(), cluster, machine, life)
			if err != nil {
				t.Fatal(err)
			}
			if !expiry.Equal(now.Add(life)) || !process.Expiry(machine.UID).Equal(expiry) {
				t.Errorf("%s: it expires at %s and %s, want %s", ahead, expiry, process.Expiry(machine.UID), now.Add(life))
			}
		}
		secret := apiserver.Read[corev1.Secret](server, "secrets", tokenNamespace, tokens(server)[0])
		if got, want := string(secret.Data["expiration"]), now.Add(life+ahead).Format(time.RFC3339); got != want {
			t.Errorf("%s: the Secret expires at %s, want %s", ahead, got, want)
		}
		if n := len(server.Requests()); n > 4 {
			t.Errorf("%s: %d requests: it was prolonged", ahead, n)
		}
	}
}
