package machinefacts

import "testing"

func TestAdoptionRace(t *testing.T) {
	var c AdoptionRace
	for i, tc := range []struct {
		changed, again, lost bool
	}{
		{changed: true, again: true},
		{},
		{changed: true, again: true},
		{changed: true, again: true},
		{changed: true, lost: true},
	} {
		var again bool
		if c, again = c.Next(tc.changed); again != tc.again || c.IsLost() != tc.lost || (c > 0) != tc.changed {
			t.Errorf("attempt %d: %d, again %t, lost %t; want again %t, lost %t", i, c, again, c.IsLost(), tc.again, tc.lost)
		}
	}
}
