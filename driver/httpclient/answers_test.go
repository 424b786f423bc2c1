package httpclient_test

import (
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
)

func TestCodeOf(t *testing.T) {
	for status, want := range map[int]driver.Code{
		401: driver.Unauthenticated, 407: driver.Unauthenticated, 403: driver.PermissionDenied, 429: driver.Unavailable, 502: driver.Unavailable,
		503: driver.Unavailable, 408: driver.DeadlineExceeded, 504: driver.DeadlineExceeded, 404: driver.Unknown, 500: driver.Unknown,
		200: driver.Unknown, 0: driver.Unknown,
	} {
		if got := httpclient.CodeOf(status); got != want {
			t.Errorf("%d: %s, want %s", status, got, want)
		}
	}
}

func TestCheckPage(t *testing.T) {
	for _, tc := range []struct {
		items       int
		token, next string
		want        driver.Code
	}{
		{10, "", "", driver.OK},
		{10, "", "a", driver.OK},
		{0, "a", "b", driver.OK},
		{10, "a", "", driver.OK},
		{11, "", "", driver.Internal},
		{1, "a", "a", driver.Internal},
	} {
		if got := driver.CodeOf(httpclient.CheckPage(driver.OpList, tc.items, 10, tc.token, tc.next)); got != tc.want {
			t.Errorf("%+v: %s", tc, got)
		}
	}
}
