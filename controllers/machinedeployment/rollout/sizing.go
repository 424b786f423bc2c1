package rollout

// sizing decides the next sizes of sets, in memory.
type sizing struct {
	*sets

	// needsLive reports whether several sets have to be resized, and that it is not known which of
	// their machines the autoscaler has named.
	needsLive bool
	// deferred is how many machines are due and have to wait, because others still exist that have to
	// be deleted. The sets are sized for as many fewer meanwhile.
	deferred int32
	// replaces reports whether the old sets shrink in this step because their machines are replaced,
	// and not because the replicas were lowered.
	replaces bool
}

// step sets the next sizes of the sets.
func (s *sizing) step() {
	s.replaces = true
	switch matches := s.d.Spec.Paused || !isRolling(s.d) && !isRecreating(s.d); {
	case s.inPlace && s.newSet != nil:
		s.replaces = !s.isLowered()
		s.stepInPlace()
	case s.newSet != nil && s.isResized(), matches && (s.isResized() || len(s.active()) <= 1):
		s.replaces = len(s.active()) > 1 && s.isSaturated()
		s.follow()
	case matches:
	case isRecreating(s.d):
		s.recreate()
	case isRolling(s.d) && s.newSet != nil: // else the old ones stay as they are until it is created
		s.newSet.size = rollUp(s.limits, s.total(), s.newSet.size)
		rollDown(s.least(s.preserved()), s.newSet, s.old)
	}
}

// recreate scales the old sets to 0, and the new one to the replicas when no machine of the old
// ones is left.
func (s *sizing) recreate() {
	for _, t := range s.old {
		t.size = 0
	}
	if s.newSet != nil && (s.newSet.size > s.replicas || s.areOldGone()) {
		s.newSet.size = rollUp(s.limits, s.total(), s.newSet.size) // its own machines may be being deleted, from when it was an old set
	}
}
