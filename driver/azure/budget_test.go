package azure

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// newBudgets returns budgets of 3,600 writes an hour, one in a second, and their time.
func newBudgets(share float64) (*budgets, *clocktesting.FakeClock) {
	c := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	rates := Rates{Reads: 3600, Writes: 3600, Deletes: 3600}
	return &budgets{clock: c, rates: rates, share: func(context.Context) float64 { return share }, all: map[budgetKey]*budget{}}, c
}

// left is the header of an answer.
func left(text string) http.Header {
	return http.Header{"X-Ms-Ratelimit-Remaining-Subscription-Writes": {text}}
}

// sendAll sends writes, of which each is answered with what the last one has left, and returns how
// many were sent.
func sendAll(t *testing.T, b *budgets, count int, header http.Header, status int) (sent int, last error) {
	t.Helper()
	for range count {
		done, err := b.take(t.Context(), "s", http.MethodPut, 1)
		if err != nil {
			last = err
			continue
		}
		sent++
		done(header, status)
	}
	return sent, last
}

func wait(t *testing.T, err error) time.Duration {
	t.Helper()
	spent, ok := errors.AsType[*budgetError](err)
	if !ok {
		t.Fatalf("%v, want a budgetError", err)
	}
	return spent.wait
}

func TestBudgetOfACloudThatReportsNothing(t *testing.T) {
	b, _ := newBudgets(0.1)
	if sent, err := sendAll(t, b, 1000, http.Header{}, http.StatusOK); sent != 1000 {
		t.Errorf("%d sent, %v; want all", sent, err)
	}
}

func TestBudgetIsTheShareOfWhatIsLeft(t *testing.T) {
	b, clock := newBudgets(0.5)
	if sent, _ := sendAll(t, b, 1, left("10"), http.StatusOK); sent != 1 {
		t.Fatal("the first one was not sent")
	}
	sent := 0
	for range 10 { // none of them is answered
		if _, err := b.take(t.Context(), "s", http.MethodPut, 1); err == nil {
			sent++
		}
	}
	if sent != 5 {
		t.Errorf("%d were sent of the share of 10, want 5", sent)
	}
	clock.Step(4 * time.Second)
	for range 10 {
		if _, err := b.take(t.Context(), "s", http.MethodPut, 1); err == nil {
			sent++
		}
	}
	if sent != 7 {
		t.Errorf("%d were sent after the share of 4 more, want 7", sent)
	}
	if _, err := b.take(t.Context(), "s", http.MethodGet, 1); err != nil {
		t.Errorf("a read: %v, want it to have its own budget", err)
	}
	if _, err := b.take(t.Context(), "other", http.MethodPut, 1); err != nil {
		t.Errorf("another subscription: %v, want it to have its own budget", err)
	}
}

// Those that are refused come back one after the other, within a bounded time.
func TestRefusedRequestsGetTheirTimes(t *testing.T) {
	b, clock := newBudgets(1)
	_, _ = sendAll(t, b, 1, left("0"), http.StatusOK)
	for i := range 3 {
		_, err := b.take(t.Context(), "s", http.MethodPut, 1)
		if got, want := wait(t, err), time.Duration(i+1)*time.Second; got != want {
			t.Errorf("the wait number %d is %v, want %v", i+1, got, want)
		}
	}
	for range 1000 {
		if _, err := b.take(t.Context(), "s", http.MethodPut, 1); wait(t, err) > longestWait {
			t.Fatalf("%v, want at most %v", err, longestWait)
		}
	}
	clock.Step(time.Second)
	if sent, err := sendAll(t, b, 1, left("0"), http.StatusOK); sent != 1 {
		t.Errorf("after the wait: %v, want one to be sent", err)
	}
}

func TestBudgetAfterARefusal(t *testing.T) {
	b, clock := newBudgets(1)
	refused := left("50")
	refused.Set("Retry-After", "7")
	_, _ = sendAll(t, b, 1, refused, http.StatusTooManyRequests)
	_, err := b.take(t.Context(), "s", http.MethodPut, 1)
	if got := wait(t, err); got != 7*time.Second {
		t.Errorf("the wait is %v, want that of the cloud", got)
	}
	clock.Step(7 * time.Second)
	if sent, err := sendAll(t, b, 1, http.Header{}, http.StatusOK); sent != 1 {
		t.Errorf("after the wait: %v, want one to be sent", err)
	}
	if sent, err := sendAll(t, b, 100, http.Header{}, http.StatusOK); sent != 100 {
		t.Errorf("%d sent, %v; want no limit of a cloud that reports none", sent, err)
	}
}

// A network interface whose VM could not be created is not created.
func TestBudgetForAVM(t *testing.T) {
	b, _ := newBudgets(1)
	_, _ = sendAll(t, b, 1, left("1"), http.StatusOK)
	if _, err := b.take(t.Context(), "s", http.MethodPut, 2); err == nil {
		t.Error("the first of two was sent when one was left")
	}
	if _, err := b.take(t.Context(), "s", http.MethodPut, 1); err != nil {
		t.Errorf("one of one: %v", err)
	}
}

// A replica that owns nothing, or whose share is not known, sends little and does not stop.
func TestBudgetWithoutAShare(t *testing.T) {
	for _, share := range []float64{0, -1} {
		b, clock := newBudgets(share)
		_, _ = sendAll(t, b, 1, left("100"), http.StatusOK)
		if sent, _ := sendAll(t, b, 5, left("100"), http.StatusOK); sent > 0 {
			t.Errorf("%d were sent without a share", sent)
		}
		clock.Step(2 * time.Minute)
		if sent, err := sendAll(t, b, 1, left("100"), http.StatusOK); sent != 1 {
			t.Errorf("after two minutes: %v, want one to be sent", err)
		}
	}
}

func TestBudgetsAreBounded(t *testing.T) {
	b, _ := newBudgets(1)
	for i := range 3 * maxBudgets {
		if _, err := b.take(t.Context(), string(rune('a'+i%26))+time.Duration(i).String(), http.MethodGet, 1); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.all) > maxBudgets {
		t.Errorf("%d budgets, want at most %d", len(b.all), maxBudgets)
	}
}

func TestRemaining(t *testing.T) {
	for text, c := range map[string]struct {
		header http.Header
		want   int
		ok     bool
	}{
		"nothing":             {http.Header{}, 0, false},
		"of the subscription": {left("1199"), 1199, true},
		"of the other kind":   {http.Header{"X-Ms-Ratelimit-Remaining-Subscription-Reads": {"1"}}, 0, false},
		"of the provider": {
			http.Header{"X-Ms-Ratelimit-Remaining-Resource": {"Microsoft.Compute/PutVM3Min;107,Microsoft.Compute/PutVM30Min;87"}}, 87, true,
		},
		"of both": {
			http.Header{"X-Ms-Ratelimit-Remaining-Subscription-Writes": {"5"}, "X-Ms-Ratelimit-Remaining-Resource": {"a;107"}}, 5, true,
		},
		"nonsense":              {left("many"), 0, false},
		"a negative number":     {left("-4"), 0, false},
		"nonsense of providers": {http.Header{"X-Ms-Ratelimit-Remaining-Resource": {"a;b;c,;,"}}, 0, false},
	} {
		if got, ok := remaining(c.header, writes); got != c.want || ok != c.ok {
			t.Errorf("%s: %d, %t; want %d, %t", text, got, ok, c.want, c.ok)
		}
	}
}

func TestServices(t *testing.T) {
	const group = "/subscriptions/s/resourceGroups/g/providers/"
	for request, want := range map[string]string{
		"GET " + group + "Microsoft.Compute/virtualMachines/a":                            "virtual_machine_get",
		"PUT " + group + "Microsoft.Compute/virtualMachines/a":                            "virtual_machine_create",
		"DELETE " + group + "microsoft.compute/virtualmachines/a":                         "virtual_machine_delete",
		"POST " + group + "Microsoft.Compute/virtualMachines/a/start":                     "virtual_machine_update",
		"GET " + group + "Microsoft.Compute/virtualMachines":                              "virtual_machine_list",
		"GET /subscriptions/s/providers/Microsoft.Network/networkInterfaces":              "nic_list",
		"PUT " + group + "Microsoft.Network/networkInterfaces/a":                          "nic_create",
		"DELETE " + group + "Microsoft.Compute/disks/a":                                   "disk_delete",
		"GET /subscriptions/s/providers/Microsoft.Compute/locations/l/publishers/p/x":     "virtual_machine_image_get",
		"PUT /subscriptions/s/providers/Microsoft.MarketplaceOrdering/offerTypes/v/x/y/z": "market_place_agreement_create",
		"POST /tenant/oauth2/v2.0/token":                                                  "token_get",
		"GET /tenant/v2.0/.well-known/openid-configuration":                               "other",
		"GET /subscriptions/s/providers/":                                                 "other",
	} {
		method, path, _ := strings.Cut(request, " ")
		if got := Service(httptest.NewRequest(method, path, http.NoBody)); got != want {
			t.Errorf("%s: %q, want %q", request, got, want)
		}
	}
}

// A replica that gets more slots may send more at once, and one that hands slots over less.
func TestBudgetFollowsTheShare(t *testing.T) {
	share := 0.25
	b, clock := newBudgets(0)
	b.share = func(context.Context) float64 { return share }
	_, _ = sendAll(t, b, 1, left("100"), http.StatusOK)
	for _, want := range []struct {
		share float64
		sent  int
	}{{0.25, 25}, {0.5, 50}, {0.1, 10}} {
		share = want.share
		clock.Step(time.Hour) // until it has as many as it may accumulate
		if sent, _ := sendAll(t, b, 100, http.Header{"X-Other": nil}, 0); sent != want.sent {
			t.Errorf("%d were sent with a share of %v, want %d of 100", sent, want.share, want.sent)
		}
	}
}
