package connection

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// Eight clusters send answers with as many values as they can all the time: what the process
// decodes is bounded, also of each of them, and of one for a long time.
func TestValuesThatAreDecodedAreBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		connections int
		long        time.Duration
		most, least int
	}{
		"one":           {1, 10 * time.Second, atOnceOfOne + maxValues + 10*perSecondOfOne, 10 * perSecondOfOne},
		"eight":         {8, 10 * time.Second, atOnceOfAll + maxValues + 10*perSecondOfAll, 10 * perSecondOfAll},
		"at once":       {8, 0, atOnceOfAll + maxValues, atOnceOfAll},
		"one at once":   {1, 0, atOnceOfOne + maxValues, atOnceOfOne},
		"one, for long": {1, time.Hour, atOnceOfList + maxValues + 3600*perSecondOfList, 3600 * perSecondOfList},
	} {
		t.Run(name, func(t *testing.T) {
			d, now, total := newDecodes(), time.Unix(1e9, 0), 0
			of := make([]inWork, tc.connections)
			for end := now.Add(tc.long); !now.After(end); now = now.Add(5 * time.Millisecond) {
				for i := range of {
					for d.take(&of[i], maxValues, now) == 0 {
						total += maxValues
					}
				}
			}
			if total > tc.most || total < tc.least {
				t.Errorf("%d values were decoded, want %d to %d", total, tc.least, tc.most)
			}
		})
	}
}

// The clock is set back by an hour.
func TestValuesAreDecodedAfterTheClockWasSetBack(t *testing.T) {
	d, now := newDecodes(), time.Unix(1e9, 0)
	var of inWork
	for range 10 {
		d.take(&of, maxValues, now)
	}
	if wait := d.take(&of, maxValues, now.Add(-time.Hour)); wait != 0 {
		t.Errorf("answers wait for %s", wait)
	}
}

// An answer is read when the values of those before it were decoded, although these were closed,
// and not after the end of its request.
func TestAnswerWaitsForValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Connection{clock: clock.RealClock{}}
		c.read.decodes = newDecodes()
		ctx, cancel := context.WithCancel(t.Context())
		read := func() error {
			body := c.bodyOf(ctx, io.NopCloser(strings.NewReader(strings.Repeat(",", maxValues))), MaxBody, false)
			defer func() { _ = body.Close() }()
			_, err := io.ReadAll(body)
			return err
		}
		begun := time.Now()
		for range 5 {
			if err := read(); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took < 3*maxValues*time.Second/perSecondOfOne {
			t.Errorf("5 answers were read within %s", took)
		}
		cancel()
		if err := read(); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v after the end of the request", err)
		}
	})
}
