package model

import "fmt"

const firstListStale mutation = "a first list may be stale"

// cloud is the model of one Machine with its VM, and of two sessions that own it in turn. A call or
// request that has begun can take effect at any time after its sender has ceased to be the owner.
type cloud struct {
	changes  uint8 // of the owner
	mutation mutation
}

// life is the stage of a Machine. It only grows.
type life uint8

const (
	unseen   life = iota // to a session: it has not listed yet
	desired              // to have a VM
	deleting             // with our finalizer
	finished             // gone
)

// machine is the Machine, its VM, and what both sessions know and do.
type machine struct {
	life    life
	vm      bool
	owner   uint8 // 0 or 1
	seen    [2]life
	calls   [2]call
	changes uint8
	broken  bool // a VM was begun for a Machine that is gone
}

// call is an operation that a session has begun.
type call uint8

const (
	noCall call = iota
	createVM
	deleteVM
	removeFinalizer
)

func (c cloud) start() machine { return machine{life: desired, changes: c.changes} }

func (c cloud) next(m machine, steps []step[machine]) []step[machine] {
	add := func(k kind, text string, who uint8, do func(m *machine)) {
		to := m
		do(&to)
		steps = append(steps, step[machine]{kind: k, name: label{format: text, first: "AB"[who : who+1]}, to: to})
	}
	c.land(m, 0, add)
	c.land(m, 1, add)
	if m.changes > 0 {
		add(fault, "%s is no longer the owner", m.owner, func(m *machine) {
			m.changes--
			m.owner = 1 - m.owner
			m.seen[m.owner] = unseen
		})
	}
	if m.life == desired {
		add(may, "(%s owns:) the Machine is deleted", m.owner, func(m *machine) { m.life = deleting })
	}
	if m.life == finished && m.vm && m.calls == [2]call{} {
		add(due, "(%s owns:) the orphan sweep removes the VM", m.owner, func(m *machine) { m.vm = false })
	}
	c.own(m, add)
	return steps
}

// land makes what a session has begun take effect.
func (c cloud) land(m machine, who uint8, add func(k kind, text string, who uint8, do func(m *machine))) {
	switch m.calls[who] {
	case noCall:
	case createVM:
		add(due, "the VM of %s is created", who, func(m *machine) { m.calls[who], m.vm = noCall, true })
	case deleteVM:
		add(due, "the VM is deleted by %s", who, func(m *machine) { m.calls[who], m.vm = noCall, false })
	case removeFinalizer:
		add(due, "the finalizer is removed by %s, and the Machine is gone", who, func(m *machine) {
			m.calls[who], m.life = noCall, finished
		})
	}
}

// own adds the steps of the owner.
func (c cloud) own(m machine, add func(k kind, text string, who uint8, do func(m *machine))) {
	who := m.owner
	switch seen := m.seen[who]; {
	case seen == unseen:
		add(due, "%s lists", who, func(m *machine) { m.seen[who] = m.life })
		for old := desired; old < m.life && c.mutation == firstListStale; old++ {
			add(fault, "%s lists, and receives an earlier state", who, func(m *machine) { m.seen[who] = old })
		}
		return
	case seen != m.life:
		add(due, "%s sees the Machine", who, func(m *machine) { m.seen[who] = m.life })
	}
	if m.calls[who] != noCall {
		return
	}
	switch m.seen[who] {
	case desired:
		if !m.vm {
			add(due, "%s finds no VM, and begins to create it", who, func(m *machine) {
				m.calls[who] = createVM
				m.broken = m.life == finished
			})
		}
	case deleting:
		if m.vm {
			add(due, "%s begins to delete the VM", who, func(m *machine) { m.calls[who] = deleteVM })
		} else if m.life == deleting {
			add(due, "%s sends: remove the finalizer", who, func(m *machine) { m.calls[who] = removeFinalizer })
		}
	case unseen, finished:
	}
}

// broken: no owner begins a VM for a Machine that is gone. A create that was begun before, by a
// session that is no longer the owner, may take effect later: the orphan sweep exists for that
// limit.
func (cloud) broken(m machine) string {
	if m.broken {
		return "an owner creates a VM for a Machine that is gone"
	}
	return ""
}

// good: the VM exists exactly as long as the Machine.
func (cloud) good(m machine) bool { return m.vm == (m.life == desired) && m.life != deleting }

func (cloud) describe(m machine) string {
	return fmt.Sprintf("the Machine is %s, its VM exists: %t", []string{"", "wanted", "being deleted", "gone"}[m.life], m.vm)
}
