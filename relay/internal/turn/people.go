package turn

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/protocol"
)

// A socket is one viewer's.
type socket struct {
	id         SocketID
	user       protocol.UserID
	name       string
	grant      protocol.GrantID
	canControl bool
	owns       bool
}

// people are the viewers' sockets, as a value: a change costs what one person's
// sockets do, and the logarithm of how many there are in all.
type people struct {
	sockets tree[protocol.UserID, []socket] // of each person, by id; never changed
	owners  tree[SocketID, protocol.UserID]
}

// find returns where a socket is among a person's, or belongs.
func find(sockets []socket, id SocketID) (int, bool) {
	return slices.BinarySearchFunc(sockets, id, func(v socket, id SocketID) int { return cmp.Compare(v.id, id) })
}

// of returns a person's sockets, by id.
func (p people) of(user protocol.UserID) []socket {
	sockets, _ := p.sockets.get(user)
	return sockets
}

// socket returns the socket with an id.
func (p people) socket(id SocketID) (socket, bool) {
	user, ok := p.owners.get(id)
	if !ok {
		return socket{}, false
	}
	sockets := p.of(user)
	i, _ := find(sockets, id)
	return sockets[i], true
}

// with returns p with v, in place of the one with its id, which is of the same
// user.
func (p people) with(v socket) people {
	sockets := p.of(v.user)
	i, known := find(sockets, v.id)
	if known {
		sockets = slices.Clone(sockets)
		sockets[i] = v
	} else {
		sockets = slices.Insert(slices.Clip(sockets), i, v)
		p.owners = p.owners.with(v.id, v.user)
	}
	p.sockets = p.sockets.with(v.user, sockets)
	return p
}

// without returns p without v, which is one of them.
func (p people) without(v socket) people {
	p.owners = p.owners.without(v.id)
	sockets := slices.Clone(p.of(v.user))
	if len(sockets) == 1 {
		p.sockets = p.sockets.without(v.user)
		return p
	}
	i, _ := find(sockets, v.id)
	p.sockets = p.sockets.with(v.user, slices.Delete(sockets, i, i+1))
	return p
}

// controlling counts user's sockets that may control, and returns the newest.
func (p people) controlling(user protocol.UserID) (last socket, n int) {
	for _, v := range p.of(user) {
		if v.canControl {
			last = v
			n++
		}
	}
	return last, n
}

// nameOf returns a user's display name.
func (p people) nameOf(user protocol.UserID) string {
	for _, v := range p.of(user) {
		if v.name != "" {
			return v.name
		}
	}
	return "somebody else"
}
