package main

import (
	"testing"
	"time"
)

func TestPercentiles(t *testing.T) {
	var hundred durations
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i)*time.Second)
	}
	for _, c := range []struct {
		d    durations
		p    int
		want time.Duration
	}{{nil, 99, 0}, {durations{time.Second}, 50, time.Second}, {hundred, 50, 50 * time.Second}, {hundred, 99, 99 * time.Second}, {
		hundred, 100, 100 * time.Second,
	}} {
		if got := c.d.percentile(c.p); got != c.want {
			t.Errorf("percentile %d of %d: expected %s, got %s", c.p, len(c.d), c.want, got)
		}
	}
}

func TestClusterIsCompleteWithTheDesiredMachinesOnly(t *testing.T) {
	is, old, pending := seen{"1", true}, seen{"0", true}, seen{"1", false}
	for _, c := range []struct {
		machines map[string]seen
		want     bool
	}{
		{nil, false},
		{map[string]seen{"a": is}, false},
		{map[string]seen{"a": is, "b": pending}, false},
		{map[string]seen{"a": is, "b": old}, false},
		{map[string]seen{"a": is, "b": is}, true},
		{map[string]seen{"a": is, "b": is, "c": is}, false},
	} {
		if got := (pool{2, 1}).is(c.machines); got != c.want {
			t.Errorf("%v: expected %t, got %t", c.machines, c.want, got)
		}
	}
}
