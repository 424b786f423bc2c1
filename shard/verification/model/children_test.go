package model

import (
	"fmt"
	"math/bits"
	"slices"
)

const (
	childWithoutIntent  mutation = "a child is created without an intent"
	absenceFromCache    mutation = "an object that a cache does not show counts as absent"
	parentUnconditional mutation = "the parent is written without its resourceVersion"
)

const (
	maxOrdinals = 4
	maxLate     = 3
)

// children is the model of a parent that wants one child, and of two sessions that own it in turn.
// Which of them owns it is decided by the other models. What an owner has sent, or checked and not
// sent yet, can take effect at any time after the ownership has changed.
type children struct {
	changes  uint8 // of the owner
	losses   uint8 // children that are deleted by hand
	mutation mutation
}

// tree is the parent, its children, and what both sessions know.
type tree struct {
	parent    parent
	exist     uint8 // a set of ordinals
	recreated uint8 // children that exist by a create that arrived after its intent had been removed
	owner     uint8 // 0 or 1
	sessions  [2]knowledge
	wire      [maxLate]write // sorted
	changes   uint8
	losses    uint8
}

// parent is the content of the parent.
type parent struct {
	next   uint8 // the ordinal of the next child
	intent uint8 // a set of ordinals whose children have to be created
}

// knowledge contains what a session knows.
type knowledge struct {
	synced bool
	parent parent
	fresh  bool // the parent is still at this version
	exist  uint8
	next   uint8 // the mutation's own count of ordinals
}

// write is a request: to create a child, or to update the parent.
type write struct {
	kind  verb // create, or acquire for an update of the parent
	who   uint8
	child uint8
	to    parent
}

func (c children) start() tree { return tree{changes: c.changes, losses: c.losses} }

// next appends all possible steps of a tree.
func (c children) next(f tree, steps []step[tree]) []step[tree] {
	add := func(k kind, text string, who uint8, child int, do func(f *tree)) {
		to := f
		do(&to)
		slices.SortFunc(to.wire[:], func(a, b write) int { return b.order() - a.order() })
		name := label{format: text, first: "AB"[who : who+1], second: "0123456789"[child : child+1]}
		steps = append(steps, step[tree]{kind: k, name: name, to: to})
	}
	for i, m := range f.wire {
		if m.kind == nothing || i > 0 && m == f.wire[i-1] {
			continue
		}
		text, child := "%s's child %s is created", int(m.child)
		if m.kind != create {
			text, child = "%s's update of the parent arrives", 0
		}
		add(due, text, m.who, child, func(f *tree) {
			f.wire[i] = write{}
			c.deliver(f, m)
		})
	}
	if f.changes > 0 {
		add(fault, "%s is no longer the owner", f.owner, 0, func(f *tree) {
			f.changes--
			f.owner = 1 - f.owner
			f.sessions[f.owner] = knowledge{next: f.sessions[f.owner].next}
		})
	}
	for child := range maxOrdinals {
		if f.losses > 0 && f.exist&(1<<child) != 0 {
			add(fault, "(%s owns:) child %s is deleted by hand", f.owner, child, func(f *tree) {
				f.losses--
				f.remove(uint8(child))
			})
		}
	}
	c.own(f, add)
	return steps
}

// own adds the steps of the owner: it watches, decides, records an intent, executes it, and removes
// it.
func (c children) own(f tree, add func(k kind, text string, who uint8, child int, do func(f *tree))) {
	who := f.owner
	s := f.sessions[who]
	if !s.synced {
		add(due, "%s lists parent and children", who, 0, func(f *tree) {
			f.sessions[who] = knowledge{synced: true, parent: f.parent, fresh: true, exist: f.exist, next: max(s.next, f.parent.next)}
		})
		return
	}
	if !s.fresh {
		add(due, "%s sees the parent", who, 0, func(f *tree) {
			f.sessions[who].parent, f.sessions[who].fresh = f.parent, true
		})
	}
	if s.exist != f.exist {
		add(due, "%s sees the children", who, 0, func(f *tree) { f.sessions[who].exist = f.exist })
	}
	if slices.ContainsFunc(f.wire[:], func(m write) bool { return m.who == who && m.kind != nothing }) || f.wire[maxLate-1].kind != nothing {
		return // a session has one request in flight for a parent
	}
	surplus := bits.OnesCount8(s.exist) > 1
	absent := s.exist == 0 && (f.exist == 0 || c.mutation == absenceFromCache)
	switch open := s.parent.intent &^ s.exist; {
	case c.mutation == childWithoutIntent && s.exist == 0 && f.exist == 0 && s.next < maxOrdinals:
		add(due, "%s sends: create child %s", who, int(s.next), func(f *tree) {
			f.send(write{kind: create, who: who, child: s.next})
			f.sessions[who].next++
		})
	case open != 0:
		child := uint8(bits.TrailingZeros8(open))
		k := due
		if f.exist&open != 0 {
			k = may // the answer has shown it
		}
		add(k, "%s sends: create child %s", who, int(child), func(f *tree) { f.send(write{kind: create, who: who, child: child}) })
	case s.parent.intent != 0 && s.fresh:
		add(due, "%s sends: remove completed intents", who, 0, func(f *tree) { f.update(who, parent{next: s.parent.next}) })
	case absent && s.fresh && s.parent.next < maxOrdinals:
		add(due, "%s sends: record the intent for child %s", who, int(s.parent.next), func(f *tree) {
			f.update(who, parent{next: s.parent.next + 1, intent: 1 << s.parent.next})
		})
	case surplus && s.exist == f.exist:
		child := bits.TrailingZeros8(s.exist)
		add(due, "%s deletes surplus child %s", who, child, func(f *tree) {
			f.remove(uint8(child))
		})
	}
}

func (f *tree) remove(child uint8) {
	f.exist &^= 1 << child
	f.recreated &^= 1 << child
}

func (f *tree) send(m write)                { f.wire[maxLate-1] = m }
func (f *tree) update(who uint8, to parent) { f.send(write{kind: acquire, who: who, to: to}) }

func (m write) order() int {
	return int(m.kind)<<24 | int(m.who)<<20 | int(m.child)<<16 | int(m.to.next)<<8 | int(m.to.intent)
}

// deliver executes a request. A child is created once for each name that is free.
func (c children) deliver(f *tree, m write) {
	bit := uint8(1) << m.child
	switch {
	case m.kind == create && f.exist&bit == 0:
		f.exist |= bit
		if m.child < f.parent.next && f.parent.intent&bit == 0 {
			f.recreated |= bit
		}
	case m.kind == acquire:
		f.parent = m.to
		f.sessions[0].fresh, f.sessions[1].fresh = false, false
		for i, other := range f.wire {
			if other.kind == acquire && c.mutation != parentUnconditional {
				f.wire[i] = write{} // it names an old version
			}
		}
	}
}

// broken: there is never a surplus child. A child that was recreated is not counted: the name of a
// child that existed and was deleted is free, and a create that arrives after that creates it once
// more. The owner deletes surplus children.
func (c children) broken(f tree) string {
	if n := bits.OnesCount8(f.exist &^ f.recreated); n > 1 {
		return fmt.Sprintf("%d children where one is wanted", n)
	}
	return ""
}

// good: there is one child, nothing is left to do, and the owner has observed that.
func (c children) good(f tree) bool {
	s := f.sessions[f.owner]
	return bits.OnesCount8(f.exist) == 1 && s.exist == f.exist
}

func (children) describe(f tree) string {
	return fmt.Sprintf("children %04b, of them recreated %04b; %c owns the parent, whose next ordinal is %d, intents %04b",
		f.exist, f.recreated, "AB"[f.owner], f.parent.next, f.parent.intent)
}
