package cloud

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/cloud/breaker"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

func TestCallsInFlightAreBoundedByCredentials(t *testing.T) {
	for most, want := range map[int]int{-1: 1, 0: 1, 1: 1, 3: 3} {
		c := newInFlight(most)
		for i := range want + 2 {
			if begun := c.begin("a"); begun != (i < want) {
				t.Errorf("at most %d: call %d has begun: %t", want, i+1, begun)
			}
		}
		if !c.begin("b") {
			t.Errorf("at most %d: a call with other credentials has not begun", want)
		}
		c.end("a")
		if !c.begin("a") || c.begin("a") {
			t.Errorf("at most %d: want that one call may follow one that has ended", want)
		}
		for range want {
			c.end("a")
		}
		c.end("b")
		if n := len(c.calls); n > 0 {
			t.Errorf("%d credentials are remembered that no call uses", n)
		}
	}
}

// What is remembered of accounts is bounded, and ends with the machines and with the first answer.
func TestAccountsAreBounded(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
	accounts := newAccounts(clock, func(types.NamespacedName) {})
	call := func(namespace, secret, machine string, o breaker.Outcome) {
		call := accountCall{
			key: accountKey{namespace, secret, driver.OpStatus}, provider: "test",
			by: breaker.Caller{Machine: machine, Class: "c"}, machine: types.NamespacedName{Namespace: namespace, Name: machine},
		}
		if _, allowed := accounts.begin(&call); allowed {
			accounts.end(call, o, "no")
		}
	}
	fail := func(namespace, secret, machine string) {
		call(namespace, secret, machine, breaker.Outcome{Code: driver.Unavailable})
	}
	for i := range 10 * mostAccounts {
		fail("n", fmt.Sprint("secret-", i), "m")
	}
	fail("other", "secret", "m")
	if got := len(accounts.all); got != mostAccounts+1 {
		t.Errorf("%d accounts are remembered, want %d of one namespace and one of the other", got, mostAccounts)
	}
	for i := range 2 * breaker.Failures {
		fail("other", "secret", fmt.Sprint("m", i))
	}
	of := accounts.all[accountKey{"other", "secret", driver.OpStatus}]
	if len(of.held) != breaker.Failures+1 { // "m" and four of these have opened it
		t.Errorf("%d machines are held, want %d", len(of.held), breaker.Failures+1)
	}
	for i := range 2 * breaker.Failures {
		accounts.forget(types.NamespacedName{Namespace: "other", Name: fmt.Sprint("m", i)})
	}
	if len(of.held) > 0 {
		t.Errorf("%d machines are held that are gone", len(of.held))
	}
	clock.SetTime(clock.Now().Add(time.Hour))
	if accounts.openOf("test") != 0 {
		t.Error("a circuit breaker counts as open for which no call was sent for an hour")
	}
	fail("n", "new", "m")
	if got := len(accounts.all); got != 1 {
		t.Errorf("%d accounts are remembered after an hour, want one", got)
	}
	call("n", "new", "m", breaker.Outcome{})
	if got := len(accounts.all); got != 0 {
		t.Errorf("%d accounts are remembered that work", got)
	}
}

func TestAccountsOfReportsDoNotNameSecrets(t *testing.T) {
	one, other := &v1alpha1.MachineClass{}, &v1alpha1.MachineClass{}
	one.Namespace, other.Namespace = "n", "m"
	if a, b := AccountOf(one), AccountOf(other); a == b || a[:2] != "n/" || len(a) != 18 {
		t.Errorf("want a short text for each namespace, got %q and %q", a, b)
	}
}
