package receipt

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReserve(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 999, time.UTC)
	at := func(ago time.Duration) int64 { return now.Add(-ago).Unix() }
	in := func(d time.Duration) time.Time { return time.Unix(now.Unix(), 0).Add(d) }
	for _, tc := range []struct {
		name    string
		before  Ledger
		keys    []string
		limit   int
		after   Ledger
		refused []string
		next    time.Time
	}{
		{name: "the first", keys: []string{"a"}, limit: 1, after: Ledger{"a": at(0)}},
		{
			name: "as many as the limit allows, in their order", keys: []string{"c", "b", "a"}, limit: 2, after: Ledger{"c": at(0), "b": at(0)},
			refused: []string{"a"}, next: in(Hour),
		},
		{
			name: "the limit is reached", before: Ledger{"x": at(20 * time.Minute), "y": at(50 * time.Minute)}, keys: []string{"a"}, limit: 2,
			after: Ledger{"x": at(20 * time.Minute), "y": at(50 * time.Minute)}, refused: []string{"a"}, next: in(10 * time.Minute),
		},
		{
			name: "one is left", before: Ledger{"x": at(time.Minute)}, keys: []string{"a", "b"}, limit: 2,
			after: Ledger{"x": at(time.Minute), "a": at(0)}, refused: []string{"b"}, next: in(59 * time.Minute),
		},
		{
			name: "a reservation ends after an hour", before: Ledger{"x": at(Hour), "y": at(Hour - time.Second)}, keys: []string{"a", "b"}, limit: 2,
			after: Ledger{"y": at(Hour - time.Second), "a": at(0)}, refused: []string{"b"}, next: in(time.Second),
		},
		{
			name: "reserved again, it counts once, from now on", before: Ledger{"a": at(30 * time.Minute)}, keys: []string{"a", "b"}, limit: 1,
			after: Ledger{"a": at(0)}, refused: []string{"b"}, next: in(Hour),
		},
		{name: "twice at a time", keys: []string{"a", "a"}, limit: 1, after: Ledger{"a": at(0)}},
		{
			name: "more than a lower limit", before: Ledger{"x": at(time.Minute), "y": at(2 * time.Minute)}, keys: []string{"a"}, limit: 1,
			after: Ledger{"x": at(time.Minute), "y": at(2 * time.Minute)}, refused: []string{"a"}, next: in(58 * time.Minute),
		},
		{
			name: "a time in the future counts from now on", before: Ledger{"x": at(-5 * time.Hour)}, keys: []string{"a"}, limit: 1,
			after: Ledger{"x": at(0)}, refused: []string{"a"}, next: in(Hour),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := tc.before.Text()
			after, refused, next := tc.before.Reserve(now, tc.keys, tc.limit)
			if diff := cmp.Diff(tc.after, after) + cmp.Diff(tc.refused, refused); diff != "" || !next.Equal(tc.next) {
				t.Errorf("the first ends %s, want %s; -want +got:\n%s", next, tc.next, diff)
			}
			if tc.before.Text() != text {
				t.Error("the ledger was changed")
			}
		})
	}
}

func TestParse(t *testing.T) {
	want := Ledger{"a": 7, "b": 9}
	for text, want := range map[string]Ledger{"": {}, want.Text(): want} {
		if l, err := ParseLedger(text); err != nil || !cmp.Equal(l, want) {
			t.Errorf("%q: %v, %v; want %v", text, l, err, want)
		}
	}
	for _, text := range []string{"{", `{"a":"b"}`, "[]"} {
		if _, err := ParseLedger(text); err == nil || !strings.Contains(err.Error(), "remove the annotation") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

func TestParseLimit(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "7": 7, "500": 500, "501": -1, "-1": -1, "many": -1, "": -1, "1.5": -1} {
		limit, err := ParseLimit(text)
		if (err != nil) != (want < 0) || err == nil && limit != want {
			t.Errorf("%q: %d, %v; want %d", text, limit, err, want)
		}
	}
}

func TestLargestLedgerIsSmall(t *testing.T) {
	l := Ledger{}
	for i := range MaxLimit {
		l[fmt.Sprintf("0b1c2d3e-4f50-6172-8394-%012d@1767323045", i)] = 1767323045
	}
	if size := len(l.Text()); size > 40<<10 {
		t.Errorf("%d bytes", size)
	}
}
