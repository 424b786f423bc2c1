package machinefacts

// AdoptionRace counts the attempts of a pass, in a row, to adopt orphans of which one had changed
// since it was read.
type AdoptionRace int

// attempts is how often a pass tries that at most: a client that writes an orphan all the time must
// not keep its controller from the rest.
const attempts = 3

// Next returns the race after an attempt, and whether the pass lists orphans of any slot again at
// once.
func (r AdoptionRace) Next(changed bool) (next AdoptionRace, again bool) {
	if !changed {
		return 0, false
	}
	return r + 1, r+1 < attempts
}

// IsLost reports whether the pass leaves orphans alone.
func (r AdoptionRace) IsLost() bool { return r >= attempts }
