package fence

import "testing"

func TestShareIsThatOfTheSlotsHeld(t *testing.T) {
	s := newStand(t)
	if got, want := s.Share(), 1.0/16; got != want {
		t.Errorf("share %v of one slot of 16, want %v", got, want)
	}
	s.slots[0].set(1, true)
	if got, want := s.Share(), 2.0/16; got != want {
		t.Errorf("share %v of two slots of 16, want %v", got, want)
	}
	s.slots[0].set(0, false)
	s.slots[testSlot].set(0, false)
	if got := s.Share(); got != 0 {
		t.Errorf("share %v without slots, want 0", got)
	}
}
